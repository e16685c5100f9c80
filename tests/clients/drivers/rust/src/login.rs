//! What the server has to be told about the client, and the token of a client that has one.

use std::error::Error;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rdkafka::client::OAuthToken;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::ConsumerContext;
use rdkafka::ClientContext;
use serde_json::Value;

const LIFETIME: Duration = Duration::from_secs(3600);
const SETTINGS: [(&str, &str); 8] = [
    ("bootstrap", "bootstrap.servers"),
    ("security", "security.protocol"),
    ("mechanism", "sasl.mechanism"),
    ("user", "sasl.username"),
    ("password", "sasl.password"),
    ("authority", "ssl.ca.location"),
    ("certificate", "ssl.certificate.location"),
    ("key", "ssl.key.location"),
];

/// The context of all clients.
#[derive(Clone, Default)]
pub struct Login {
    token: Option<String>,
}

impl Login {
    pub fn of(request: &Value) -> Self {
        Login {
            token: request["token"].as_str().map(str::to_owned),
        }
    }
}

/// The arguments of log_in as settings of librdkafka.
pub fn settings(request: &Value) -> ClientConfig {
    let mut settings = ClientConfig::new();
    for (argument, name) in SETTINGS {
        if let Some(value) = request[argument].as_str() {
            settings.set(name, value);
        }
    }
    settings
}

impl ClientContext for Login {
    const ENABLE_REFRESH_OAUTH_TOKEN: bool = true;

    fn generate_oauth_token(&self, _: Option<&str>) -> Result<OAuthToken, Box<dyn Error>> {
        let expires = SystemTime::now().duration_since(UNIX_EPOCH)? + LIFETIME;
        Ok(OAuthToken {
            token: self.token.clone().ok_or("no token")?,
            principal_name: String::new(),
            lifetime_ms: expires.as_millis() as i64,
        })
    }
}

impl ConsumerContext for Login {}

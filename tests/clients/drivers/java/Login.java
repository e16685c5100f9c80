import com.google.gson.JsonObject;
import java.util.Properties;

/** How the client is told to log in. */
final class Login {
    private static final String MODULES = "org.apache.kafka.common.security.";

    /** From the arguments of log_in. */
    static Properties settings(JsonObject login) {
        Properties settings = new Properties();
        settings.put("security.protocol", login.get("security").getAsString());
        String password = login.get("store_password").getAsString();
        if (Driver.has(login, "trust_store")) {
            store(settings, "ssl.truststore", login.get("trust_store").getAsString(), password);
        }
        if (Driver.has(login, "key_store")) {
            store(settings, "ssl.keystore", login.get("key_store").getAsString(), password);
            settings.put("ssl.key.password", password);
        }
        if (Driver.has(login, "mechanism")) {
            Driver.set(settings, "sasl.mechanism", login.get("mechanism").getAsString());
            Driver.set(settings, "sasl.jaas.config", module(login, settings));
        }
        settings.put("bootstrap.servers", login.get("bootstrap").getAsString());
        return settings;
    }

    private static void store(Properties settings, String kind, String file, String password) {
        settings.put(kind + ".location", file);
        settings.put(kind + ".type", "PKCS12");
        settings.put(kind + ".password", password);
    }

    private static String module(JsonObject login, Properties settings) {
        String mechanism = login.get("mechanism").getAsString();
        if (mechanism.equals("OAUTHBEARER")) {
            settings.put("sasl.login.callback.handler.class", Version.tokens());
            String token = login.get("token").getAsString();
            return MODULES + "oauthbearer.OAuthBearerLoginModule required token=\"" + token + "\";";
        }
        String module = mechanism.equals("PLAIN") ? "plain.PlainLoginModule" : "scram.ScramLoginModule";
        String user = login.get("user").getAsString();
        String password = login.get("password").getAsString();
        return MODULES + module + " required username=\"" + user + "\" password=\"" + password + "\";";
    }
}

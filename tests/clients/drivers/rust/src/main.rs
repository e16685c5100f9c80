//! rust-rdkafka under trial: driver BOOTSTRAP. The line protocol is described in ../../lines.py.

mod login;

use std::error::Error;
use std::io::{BufRead, Write};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use base64::prelude::{Engine, BASE64_STANDARD};
use rdkafka::admin::{
    AdminClient, AdminOptions, AlterConfig, NewPartitions, NewTopic, ResourceSpecifier, TopicReplication,
};
use rdkafka::client::{DefaultClientContext, OAuthToken};
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{BorrowedMessage, Header, Headers, Message, OwnedHeaders};
use rdkafka::producer::{BaseRecord, DeliveryResult, Producer, ProducerContext, ThreadedProducer};
use rdkafka::{ClientContext, Offset, TopicPartitionList};
use serde_json::{json, Value};
use tokio::runtime::Runtime;

use login::Login;

const TIMEOUT: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(100);
/// After a whole run there are a thousand topics, and a busy machine takes its time to list them.
const LISTING: Duration = Duration::from_secs(2);

enum Failure {
    Error(String),
    Unsupported(&'static str),
}

impl From<KafkaError> for Failure {
    fn from(error: KafkaError) -> Self {
        eprintln!("{error}");
        Failure::Error(
            error
                .rdkafka_error_code()
                .map_or(error.to_string(), |code| format!("{code:?}")),
        )
    }
}

impl From<RDKafkaErrorCode> for Failure {
    fn from(code: RDKafkaErrorCode) -> Self {
        Failure::Error(format!("{code:?}"))
    }
}

type Answer = Result<Value, Failure>;

struct Driver {
    server: ClientConfig,
    login: Login,
    runtime: Runtime,
    admin: AdminClient<DefaultClientContext>,
    member: Option<BaseConsumer<Login>>,
    open: Option<ThreadedProducer<Reports>>,
}

fn main() {
    let bootstrap = std::env::args().nth(1).expect("a bootstrap address");
    let server = login::settings(&json!({ "bootstrap": bootstrap }));
    let mut driver = Driver {
        admin: server.create().expect("an admin client"),
        runtime: Runtime::new().expect("a runtime"),
        member: None,
        open: None,
        server,
        login: Login::default(),
    };
    for line in std::io::stdin().lock().lines() {
        let request: Value = serde_json::from_str(&line.expect("a line")).expect("JSON");
        let answer = match driver.act(&request) {
            Ok(result) => json!({ "result": result }),
            Err(Failure::Error(name)) => json!({ "error": name }),
            Err(Failure::Unsupported(why)) => json!({ "unsupported": why }),
        };
        let mut out = std::io::stdout().lock();
        writeln!(out, "{answer}")
            .and_then(|()| out.flush())
            .expect("somebody who reads");
    }
}

impl Driver {
    fn act(&mut self, request: &Value) -> Answer {
        match text(request, "do") {
            "log_in" => self.log_in(request),
            "produce" => self.produce(request),
            "open" => {
                let records = array(request, "records");
                let producer = self.begun(request, records.len())?;
                let positions = write(&producer, text(request, "topic"), records);
                self.open = Some(producer);
                positions
            }
            "finish" => finish(
                self.open.as_ref().expect("an open transaction"),
                text(request, "end"),
            ),
            "copy" => self.copy(request),
            "fetch" => self.fetch(request),
            "bounds" => {
                let (start, end) = self.consumer(None, &[])?.fetch_watermarks(
                    text(request, "topic"),
                    number(request, "partition") as i32,
                    TIMEOUT,
                )?;
                Ok(json!([start, end]))
            }
            "offset_at" => {
                let asked = position(request, Offset::Offset(number(request, "timestamp")))?;
                let found = self.consumer(None, &[])?.offsets_for_times(asked, TIMEOUT)?;
                Ok(offset_of(&found))
            }
            "join" => self.join(request),
            "poll" => self.poll(request),
            "commit" => Ok(json!(self.member().commit_consumer_state(CommitMode::Sync)?)),
            "leave" => {
                self.member = None;
                Ok(Value::Null)
            }
            "committed" => {
                let consumer = self.consumer(Some(text(request, "group")), &[])?;
                Ok(offset_of(
                    &consumer.committed_offsets(position(request, Offset::Invalid)?, TIMEOUT)?,
                ))
            }
            "set_offset" => {
                let consumer = self.consumer(Some(text(request, "group")), &[])?;
                let wanted = position(request, Offset::Offset(number(request, "offset")))?;
                Ok(json!(consumer.commit(&wanted, CommitMode::Sync)?))
            }
            "describe_group" | "groups" | "delete_group" => self.groups(request),
            _ => self.topics(request),
        }
    }

    /// A refusal is told to those who poll; asking for metadata only fails.
    fn log_in(&mut self, request: &Value) -> Answer {
        self.server = login::settings(request);
        self.login = Login::of(request);
        self.admin = self.server.create()?;
        let consumer = self.consumer(None, &[])?;
        let deadline = Instant::now() + TIMEOUT;
        loop {
            if let Some(Err(error)) = consumer.poll(POLL) {
                if error.rdkafka_error_code() != Some(RDKafkaErrorCode::AllBrokersDown) {
                    return Err(error.into());
                }
            }
            match consumer.fetch_metadata(None, LISTING) {
                Err(error) if Instant::now() >= deadline => return Err(error.into()),
                Err(_) => continue,
                Ok(_) => return Ok(Value::Null),
            }
        }
    }

    fn topics(&self, request: &Value) -> Answer {
        let options = AdminOptions::new().operation_timeout(Some(TIMEOUT));
        let topic = text(request, "topic");
        match text(request, "do") {
            "create_topic" => {
                let mut wanted = NewTopic::new(topic, number(request, "partitions") as i32, TopicReplication::Fixed(1));
                for (name, value) in request["configs"].as_object().expect("configurations") {
                    wanted = wanted.set(name, value.as_str().expect("text"));
                }
                first(self.runtime.block_on(self.admin.create_topics([&wanted], &options))?)
            }
            "delete_topic" => first(self.runtime.block_on(self.admin.delete_topics(&[topic], &options))?),
            "add_partitions" => {
                let total = NewPartitions::new(topic, number(request, "partitions") as usize);
                first(
                    self.runtime
                        .block_on(self.admin.create_partitions([&total], &options))?,
                )
            }
            "partitions" => {
                let found = self.admin.inner().fetch_metadata(None, TIMEOUT)?;
                let count = found
                    .topics()
                    .iter()
                    .find(|each| each.name() == topic)
                    .map(|each| each.partitions().len());
                Ok(json!(count))
            }
            "configs" => {
                let asked = [ResourceSpecifier::Topic(topic)];
                let found = self.runtime.block_on(self.admin.describe_configs(&asked, &options))?;
                let entries = found.into_iter().next().expect("one resource")?;
                let names = request["names"]
                    .as_array()
                    .expect("names")
                    .iter()
                    .filter_map(Value::as_str);
                Ok(names
                    .map(|name| (name.to_owned(), json!(entries.get(name).and_then(|e| e.value.clone()))))
                    .collect())
            }
            "set_config" => {
                let change = AlterConfig::new(ResourceSpecifier::Topic(topic));
                let change = change.set(text(request, "name"), text(request, "value"));
                let answers = self.runtime.block_on(self.admin.alter_configs([&change], &options))?;
                match answers.into_iter().next().expect("one answer") {
                    Ok(_) => Ok(Value::Null),
                    Err((_, code)) => Err(code.into()),
                }
            }
            "delete_records" => {
                let before = position(request, Offset::Offset(number(request, "offset")))?;
                let deleted = self.runtime.block_on(self.admin.delete_records(&before, &options))?;
                deleted.elements()[0].error()?;
                Ok(Value::Null)
            }
            _ => Err(Failure::Unsupported("no such call")),
        }
    }

    fn groups(&self, request: &Value) -> Answer {
        if text(request, "do") == "delete_group" {
            let deleting = self
                .admin
                .delete_groups(&[text(request, "group")], &AdminOptions::new());
            return first(self.runtime.block_on(deleting)?);
        }
        let consumer = self.consumer(None, &[])?;
        if text(request, "do") == "groups" {
            let found = consumer.fetch_group_list(None, TIMEOUT)?;
            let prefix = text(request, "prefix");
            let mut names: Vec<_> = found.groups().iter().map(|each| each.name()).collect();
            names.retain(|name| name.starts_with(prefix));
            names.sort_unstable();
            return Ok(json!(names));
        }
        let found = consumer.fetch_group_list(Some(text(request, "group")), TIMEOUT)?;
        let group = &found.groups()[0];
        Ok(json!({ "state": group.state(), "members": group.members().len() }))
    }

    fn produce(&self, request: &Value) -> Answer {
        let mut settings = self.server.clone();
        let transaction = &request["transaction"];
        let exactly_once = request["idempotent"] == true || !transaction.is_null();
        settings
            .set("acks", text(request, "acks"))
            .set("compression.type", text(request, "codec"));
        settings
            .set("enable.idempotence", exactly_once.to_string())
            .set("linger.ms", "20");
        settings
            .set("message.max.bytes", "10000000")
            .set("message.timeout.ms", TIMEOUT.as_millis().to_string());
        if !transaction.is_null() {
            settings.set("transactional.id", text(transaction, "id"));
        }
        let records = array(request, "records");
        let reports = self.reports(records.len());
        let producer: ThreadedProducer<Reports> = settings.create_with_context(reports)?;
        if !transaction.is_null() {
            producer.init_transactions(TIMEOUT)?;
            producer.begin_transaction()?;
        }
        let positions = write(&producer, text(request, "topic"), records)?;
        if let Some(end) = transaction["end"].as_str() {
            finish(&producer, end)?;
        }
        Ok(positions)
    }

    fn begun(&self, request: &Value, records: usize) -> Result<ThreadedProducer<Reports>, KafkaError> {
        let mut settings = self.server.clone();
        let timeout = number(request, "timeout_ms").to_string();
        settings
            .set("transactional.id", text(request, "id"))
            .set("transaction.timeout.ms", &timeout)
            .set("message.timeout.ms", &timeout);
        let reports = self.reports(records);
        let producer: ThreadedProducer<Reports> = settings.create_with_context(reports)?;
        producer.init_transactions(TIMEOUT)?;
        producer.begin_transaction()?;
        Ok(producer)
    }

    fn copy(&self, request: &Value) -> Answer {
        let settings = [
            ("auto.offset.reset", "earliest".to_owned()),
            ("isolation.level", "read_committed".to_owned()),
        ];
        let consumer = self.consumer(Some(text(request, "group")), &settings)?;
        consumer.subscribe(&[text(request, "source")])?;
        let mut records = Vec::new();
        let deadline = Instant::now() + Duration::from_millis(number(request, "timeout_ms") as u64);
        while (records.len() as i64) < number(request, "count") && Instant::now() < deadline {
            if let Some(message) = consumer.poll(POLL) {
                records.push(described(&message?));
            }
        }
        let producer = self.begun(request, records.len())?;
        write(&producer, text(request, "topic"), &records)?;
        let group = consumer.group_metadata().expect("a member");
        producer.send_offsets_to_transaction(&consumer.position()?, &group, TIMEOUT)?;
        finish(&producer, text(request, "end"))?;
        Ok(json!(records.len()))
    }

    fn fetch(&self, request: &Value) -> Answer {
        let mut settings = vec![("isolation.level", text(request, "isolation").to_owned())];
        if let Some(bytes) = request["max_bytes"].as_i64() {
            settings.push(("max.partition.fetch.bytes", bytes.to_string()));
        }
        let consumer = self.consumer(None, &settings)?;
        consumer.assign(&position(request, Offset::Offset(number(request, "offset")))?)?;
        let mut found = Vec::new();
        let deadline = Instant::now() + Duration::from_millis(number(request, "timeout_ms") as u64);
        while (found.len() as i64) < number(request, "count") && Instant::now() < deadline {
            if let Some(message) = consumer.poll(POLL) {
                found.push(described(&message?));
            }
        }
        Ok(json!(found))
    }

    fn join(&mut self, request: &Value) -> Answer {
        let mut settings = vec![
            ("auto.offset.reset", "earliest".to_owned()),
            ("topic.metadata.refresh.interval.ms", "1000".to_owned()),
        ];
        match request["protocol"].as_str() {
            Some(protocol) => settings.push(("group.protocol", protocol.to_owned())),
            None => {
                let assignor = request["assignor"].as_str().unwrap_or("range");
                settings.push(("session.timeout.ms", number(request, "session_timeout_ms").to_string()));
                settings.push(("heartbeat.interval.ms", "500".to_owned()));
                settings.push(("partition.assignment.strategy", assignor.to_owned()));
            }
        }
        if let Some(instance) = request["instance_id"].as_str() {
            settings.push(("group.instance.id", instance.to_owned()));
        }
        let consumer = self.consumer(Some(text(request, "group")), &settings)?;
        match request["pattern"].as_str() {
            Some(pattern) => consumer.subscribe(&[&format!("^{pattern}")])?,
            None => {
                let topics = request["topics"]
                    .as_array()
                    .expect("topics")
                    .iter()
                    .filter_map(Value::as_str);
                consumer.subscribe(&topics.collect::<Vec<_>>())?;
            }
        }
        self.member = Some(consumer);
        Ok(Value::Null)
    }

    fn poll(&self, request: &Value) -> Answer {
        let mut records = Vec::new();
        let mut assigned = Vec::new();
        let deadline = Instant::now() + Duration::from_millis(number(request, "timeout_ms") as u64);
        while Instant::now() < deadline {
            if let Some(message) = self.member().poll(POLL) {
                records.push(described(&message?));
            }
            let held = self.member().assignment()?;
            assigned = held
                .elements()
                .iter()
                .map(|each| json!([each.topic(), each.partition()]))
                .collect();
            let enough = records.len() as i64 >= number(request, "count");
            if enough
                && request["assigned"]
                    .as_u64()
                    .is_none_or(|wanted| wanted == assigned.len() as u64)
            {
                break;
            }
        }
        Ok(json!({ "records": records, "assigned": assigned }))
    }

    fn reports(&self, records: usize) -> Reports {
        Reports {
            login: self.login.clone(),
            answers: Mutex::new(vec![None; records]),
        }
    }

    fn member(&self) -> &BaseConsumer<Login> {
        self.member.as_ref().expect("a member")
    }

    fn consumer(&self, group: Option<&str>, settings: &[(&str, String)]) -> Result<BaseConsumer<Login>, KafkaError> {
        let mut all = self.server.clone();
        all.set("group.id", group.unwrap_or("unused"))
            .set("enable.auto.commit", "false");
        all.set("auto.offset.reset", "error");
        for (name, value) in settings {
            all.set(*name, value);
        }
        all.create_with_context(self.login.clone())
    }
}

/// Collects what becomes of each record; the opaque value is its index.
struct Reports {
    login: Login,
    answers: Mutex<Vec<Option<Result<[i64; 2], KafkaError>>>>,
}

impl ClientContext for Reports {
    const ENABLE_REFRESH_OAUTH_TOKEN: bool = true;

    fn generate_oauth_token(&self, config: Option<&str>) -> Result<OAuthToken, Box<dyn Error>> {
        self.login.generate_oauth_token(config)
    }
}

impl ProducerContext for Reports {
    type DeliveryOpaque = Box<usize>;

    fn delivery(&self, result: &DeliveryResult<'_>, index: Box<usize>) {
        let answer = match result {
            Ok(message) => Ok([i64::from(message.partition()), message.offset()]),
            Err((error, _)) => Err(error.clone()),
        };
        self.answers.lock().expect("no panic")[*index] = Some(answer);
    }
}

fn write(producer: &ThreadedProducer<Reports>, topic: &str, records: &[Value]) -> Answer {
    for (index, record) in records.iter().enumerate() {
        send(producer, topic, index, record)?;
    }
    producer.flush(TIMEOUT)?;
    let answers = std::mem::take(&mut *producer.context().answers.lock().expect("no panic"));
    let positions: Result<Vec<_>, _> = answers.into_iter().map(|each| each.expect("a report")).collect();
    Ok(json!(positions?))
}

fn finish(producer: &ThreadedProducer<Reports>, end: &str) -> Answer {
    match end {
        "commit" => producer.commit_transaction(TIMEOUT)?,
        _ => producer.abort_transaction(TIMEOUT)?,
    }
    Ok(Value::Null)
}

fn send(producer: &ThreadedProducer<Reports>, topic: &str, index: usize, record: &Value) -> Result<(), Failure> {
    let (key, value) = (bytes(&record["key"]), bytes(&record["value"]));
    let mut message: BaseRecord<'_, [u8], [u8], Box<usize>> = BaseRecord::with_opaque_to(topic, Box::new(index));
    if let Some(key) = &key {
        message = message.key(key);
    }
    if let Some(value) = &value {
        message = message.payload(value);
    }
    if let Some(partition) = record["partition"].as_i64() {
        message = message.partition(partition as i32);
    }
    if let Some(timestamp) = record["timestamp"].as_i64() {
        message = message.timestamp(timestamp);
    }
    let mut headers = OwnedHeaders::new();
    for header in record["headers"].as_array().expect("headers") {
        let value = bytes(&header[1]);
        headers = headers.insert(Header {
            key: header[0].as_str().expect("a name"),
            value: value.as_ref(),
        });
    }
    producer
        .send(message.headers(headers))
        .map_err(|(error, _)| error.into())
}

fn described(message: &BorrowedMessage<'_>) -> Value {
    let headers: Vec<_> = message.headers().map_or(Vec::new(), |headers| {
        headers
            .iter()
            .map(|each| json!([each.key, each.value.map(|value| BASE64_STANDARD.encode(value))]))
            .collect()
    });
    json!({
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp": message.timestamp().to_millis(),
        "key": message.key().map(|key| BASE64_STANDARD.encode(key)),
        "value": message.payload().map(|value| BASE64_STANDARD.encode(value)),
        "headers": headers,
    })
}

/// The answer of an admin call about one thing.
fn first(answers: Vec<Result<String, (String, RDKafkaErrorCode)>>) -> Answer {
    match answers.into_iter().next().expect("one answer") {
        Ok(_) => Ok(Value::Null),
        Err((_, code)) => Err(code.into()),
    }
}

fn position(request: &Value, offset: Offset) -> Result<TopicPartitionList, KafkaError> {
    let mut list = TopicPartitionList::new();
    list.add_partition_offset(text(request, "topic"), number(request, "partition") as i32, offset)?;
    Ok(list)
}

fn offset_of(list: &TopicPartitionList) -> Value {
    match list.elements()[0].offset() {
        Offset::Offset(offset) => json!(offset),
        _ => Value::Null,
    }
}

fn bytes(text: &Value) -> Option<Vec<u8>> {
    text.as_str().map(|text| BASE64_STANDARD.decode(text).expect("base64"))
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().expect(name)
}

fn array<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value[name].as_array().expect(name)
}

fn number(value: &Value, name: &str) -> i64 {
    value[name].as_i64().expect(name)
}

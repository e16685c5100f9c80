// KafkaJS under trial: driver.js BOOTSTRAP. The line protocol is described in ../lines.py.
'use strict'

const fs = require('fs')
const readline = require('readline')
const { randomUUID } = require('crypto')
const {
  Kafka, CompressionCodecs, CompressionTypes, ConfigResourceTypes, Partitioners, logLevel,
} = require('kafkajs')

const POLL_MS = 100
const LZ4 = require('kafkajs-lz4')
CompressionCodecs[CompressionTypes.Snappy] = require('kafkajs-snappy')
CompressionCodecs[CompressionTypes.LZ4] = new LZ4().codec

const CODECS = {
  none: CompressionTypes.None, gzip: CompressionTypes.GZIP, snappy: CompressionTypes.Snappy, lz4: CompressionTypes.LZ4,
}
const TOPIC = ConfigResourceTypes.TOPIC

class Unsupported extends Error {}

const encoded = bytes => (bytes == null ? null : Buffer.from(bytes).toString('base64'))
const decoded = text => (text === null ? null : Buffer.from(text, 'base64'))
const sleep = ms => new Promise(resolve => setTimeout(resolve, ms))

function nameOf (error) {
  if (error.errors && error.errors.length) return nameOf(error.errors[0])
  if (error.cause && error.cause !== error) return nameOf(error.cause)
  return error.type || error.name
}

function recordOf ({ partition, message }) {
  const headers = []
  for (const [name, value] of Object.entries(message.headers || {})) {
    for (const each of Array.isArray(value) ? value : [value]) headers.push([name, encoded(each)])
  }
  return {
    partition, offset: Number(message.offset), timestamp: Number(message.timestamp), key: encoded(message.key),
    value: encoded(message.value), headers,
  }
}

function messageOf (record) {
  const headers = {}
  for (const [name, value] of record.headers) (headers[name] = headers[name] || []).push(decoded(value))
  const message = { key: decoded(record.key), value: decoded(record.value), headers }
  if (record.partition !== null) message.partition = record.partition
  if (record.timestamp !== null) message.timestamp = String(record.timestamp)
  return message
}

function connection (settings) {
  const toError = () => ({ namespace, log }) => console.error(namespace, log.message, log.error || '')
  return new Kafka({ ...settings, logLevel: logLevel.ERROR, logCreator: toError })
}

function tlsOf ({ authority, certificate, key }) {
  if (!authority) return undefined
  const own = certificate ? { cert: fs.readFileSync(certificate), key: fs.readFileSync(key) } : {}
  return { ca: [fs.readFileSync(authority)], ...own }
}

function saslOf ({ mechanism, user: username, password, token }) {
  if (!mechanism) return undefined
  if (mechanism === 'OAUTHBEARER') return { mechanism: 'oauthbearer', oauthBearerProvider: async () => ({ value: token }) }
  return { mechanism: mechanism.toLowerCase(), username, password }
}

class Driver {
  constructor (bootstrap) {
    this.kafka = connection({ brokers: [bootstrap] })
    this.admin = null
    this.member = null
    this.open_transaction = null
  }

  async log_in ({ bootstrap, ...login }) {
    this.kafka = connection({ brokers: [bootstrap], ssl: tlsOf(login), sasl: saslOf(login) })
    this.admin = null
    await (await this.administration()).listTopics()
  }

  async administration () {
    if (this.admin === null) {
      this.admin = this.kafka.admin()
      await this.admin.connect()
    }
    return this.admin
  }

  async create_topic ({ topic, partitions, configs }) {
    const configEntries = Object.entries(configs).map(([name, value]) => ({ name, value }))
    const wanted = { topic, numPartitions: partitions, replicationFactor: 1, configEntries }
    const made = await (await this.administration()).createTopics({ topics: [wanted] })
    if (!made) throw Object.assign(new Error('createTopics says false'), { name: 'false' })
  }

  async delete_topic ({ topic }) {
    await (await this.administration()).deleteTopics({ topics: [topic] })
  }

  async add_partitions ({ topic, partitions }) {
    await (await this.administration()).createPartitions({ topicPartitions: [{ topic, count: partitions }] })
  }

  async partitions ({ topic }) {
    const admin = await this.administration()
    if (!(await admin.listTopics()).includes(topic)) return null
    return (await admin.fetchTopicMetadata({ topics: [topic] })).topics[0].partitions.length
  }

  async configs ({ topic, names }) {
    const resources = [{ type: TOPIC, name: topic, configNames: names }]
    const found = await (await this.administration()).describeConfigs({ resources, includeSynonyms: false })
    return Object.fromEntries(found.resources[0].configEntries.map(each => [each.configName, each.configValue]))
  }

  async set_config ({ topic, name, value }) {
    const resources = [{ type: TOPIC, name: topic, configEntries: [{ name, value }] }]
    await (await this.administration()).alterConfigs({ resources, validateOnly: false })
  }

  async delete_records ({ topic, partition, offset }) {
    const partitions = [{ partition, offset: String(offset) }]
    await (await this.administration()).deleteTopicRecords({ topic, partitions })
  }

  async bounds ({ topic, partition }) {
    const found = await (await this.administration()).fetchTopicOffsets(topic)
    const { low, high } = found.find(each => each.partition === partition)
    return [Number(low), Number(high)]
  }

  async offset_at ({ topic, partition, timestamp }) {
    const found = await (await this.administration()).fetchTopicOffsetsByTimestamp(topic, timestamp)
    return Number(found.find(each => each.partition === partition).offset)
  }

  async produce ({ topic, records, acks, codec, idempotent, transaction }) {
    if (!(codec in CODECS)) throw new Unsupported(`no ${codec}`)
    const producer = this.kafka.producer({
      createPartitioner: Partitioners.DefaultPartitioner,
      idempotent: idempotent || transaction !== null,
      maxInFlightRequests: 1,
      transactionalId: transaction ? transaction.id : undefined,
      retry: { retries: 5 },
    })
    await producer.connect()
    try {
      const batch = {
        topic, acks: acks === 'all' ? -1 : Number(acks), compression: CODECS[codec], messages: records.map(messageOf),
      }
      if (transaction === null) return positions(records, await producer.send(batch))
      const open = await producer.transaction()
      const answers = positions(records, await open.send(batch))
      await (transaction.end === 'commit' ? open.commit() : open.abort())
      return answers
    } finally {
      await producer.disconnect()
    }
  }

  async transactional ({ id, timeout_ms: transactionTimeout }) {
    const producer = this.kafka.producer({
      createPartitioner: Partitioners.DefaultPartitioner,
      idempotent: true,
      maxInFlightRequests: 1,
      transactionalId: id,
      transactionTimeout,
      retry: { retries: 5 },
    })
    await producer.connect()
    return { producer, transaction: await producer.transaction() }
  }

  async open ({ topic, records, ...request }) {
    this.open_transaction = (await this.transactional(request)).transaction
    return positions(records, await this.open_transaction.send({ topic, messages: records.map(messageOf) }))
  }

  async finish ({ end }) {
    await (end === 'commit' ? this.open_transaction.commit() : this.open_transaction.abort())
  }

  async copy ({ source, topic, group, count, end, ...request }) {
    const { producer, transaction } = await this.transactional(request)
    const consumer = this.kafka.consumer({ groupId: group, readUncommitted: false, maxWaitTimeInMs: 200 })
    const found = []
    await consumer.connect()
    try {
      await consumer.subscribe({ topics: [source], fromBeginning: true })
      await consumer.run({ autoCommit: false, eachMessage: async each => { found.push(each) } })
      const deadline = Date.now() + request.timeout_ms
      while (found.length < count && Date.now() < deadline) await sleep(POLL_MS / 5)
      const messages = found.map(({ message: { key, value } }) => ({ key, value, partition: 0 }))
      await transaction.send({ topic, messages })
      const next = new Map(found.map(each => [each.partition, String(BigInt(each.message.offset) + 1n)]))
      const partitions = [...next].map(([partition, offset]) => ({ partition, offset }))
      await transaction.sendOffsets({ consumerGroupId: group, topics: [{ topic: source, partitions }] })
      await (end === 'commit' ? transaction.commit() : transaction.abort())
      return found.length
    } finally {
      await consumer.disconnect()
      await producer.disconnect()
    }
  }

  /** KafkaJS reads in groups only: one that nobody else has. */
  async fetch ({ topic, partition, offset, count, timeout_ms: timeoutMs, max_bytes: maxBytes, isolation }) {
    const consumer = this.kafka.consumer({
      groupId: `unused-${randomUUID()}`,
      readUncommitted: isolation === 'read_uncommitted',
      maxWaitTimeInMs: 200,
      ...(maxBytes === null ? {} : { maxBytesPerPartition: maxBytes, maxBytes }),
    })
    const found = []
    await consumer.connect()
    try {
      await consumer.subscribe({ topics: [topic], fromBeginning: true })
      await consumer.run({
        autoCommit: false,
        eachMessage: async each => { if (each.partition === partition) found.push(recordOf(each)) },
      })
      consumer.seek({ topic, partition, offset: String(offset) })
      const deadline = Date.now() + timeoutMs
      while (found.length < count && Date.now() < deadline) await sleep(POLL_MS / 5)
      return found.slice(0, count)
    } finally {
      await consumer.disconnect()
    }
  }

  async join ({ group, topics, pattern, session_timeout_ms: sessionTimeout, instance_id: instance, assignor, protocol }) {
    if (instance) throw new Unsupported('no static membership')
    if (assignor) throw new Unsupported('no cooperative rebalancing')
    if (protocol) throw new Unsupported('no KIP-848')
    const consumer = this.kafka.consumer({
      groupId: group, sessionTimeout, rebalanceTimeout: sessionTimeout, heartbeatInterval: 500, metadataMaxAge: 1000,
      maxWaitTimeInMs: 200,
    })
    const member = { consumer, records: [], assigned: [], read: new Map() }
    consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
      member.assigned = Object.entries(payload.memberAssignment)
        .flatMap(([topic, partitions]) => partitions.map(partition => [topic, partition]))
    })
    consumer.on(consumer.events.REBALANCING, () => { member.assigned = [] })
    await consumer.connect()
    await consumer.subscribe({ topics: pattern ? [new RegExp(`^${pattern}$`)] : topics, fromBeginning: true })
    await consumer.run({ autoCommit: false, eachMessage: async each => { member.records.push(each) } })
    this.member = member
  }

  async poll ({ count, timeout_ms: timeoutMs, assigned }) {
    const records = []
    const deadline = Date.now() + timeoutMs
    while (Date.now() < deadline) {
      for (const each of this.member.records.splice(0)) {
        const offset = String(BigInt(each.message.offset) + 1n)
        this.member.read.set(`${each.topic}/${each.partition}`, { topic: each.topic, partition: each.partition, offset })
        records.push(recordOf(each))
      }
      if (records.length >= count && (assigned === null || assigned === this.member.assigned.length)) break
      await sleep(POLL_MS)
    }
    return { records, assigned: this.member.assigned }
  }

  async commit () {
    await this.member.consumer.commitOffsets([...this.member.read.values()])
  }

  async leave () {
    await this.member.consumer.disconnect()
  }

  async committed ({ group, topic, partition }) {
    const found = await (await this.administration()).fetchOffsets({ groupId: group, topics: [topic] })
    const at = found[0].partitions.find(each => each.partition === partition)
    return at === undefined || Number(at.offset) < 0 ? null : Number(at.offset)
  }

  async set_offset ({ group, topic, partition, offset }) {
    const partitions = [{ partition, offset: String(offset) }]
    await (await this.administration()).setOffsets({ groupId: group, topic, partitions })
  }

  async describe_group ({ group }) {
    const found = (await (await this.administration()).describeGroups([group])).groups[0]
    return { state: found.state, members: found.members.length }
  }

  async groups ({ prefix }) {
    const found = await (await this.administration()).listGroups()
    return found.groups.map(each => each.groupId).filter(name => name.startsWith(prefix)).sort()
  }

  async delete_group ({ group }) {
    await (await this.administration()).deleteGroups([group])
  }
}

/** The answer names the first offset of each partition; records follow in order. */
function positions (records, answers) {
  const next = new Map((answers || []).map(each => [each.partition, Number(each.baseOffset)]))
  return records.map(({ partition }) => {
    if (!next.has(partition)) return [partition, -1]
    const offset = next.get(partition)
    next.set(partition, offset + 1)
    return [partition, offset]
  })
}

async function answer (driver, { do: action, ...request }) {
  if (typeof driver[action] !== 'function') return { unsupported: 'the client has no such call' }
  try {
    return { result: (await driver[action](request)) ?? null }
  } catch (error) {
    if (error instanceof Unsupported) return { unsupported: error.message }
    console.error(error)
    return { error: nameOf(error) }
  }
}

async function main () {
  const driver = new Driver(process.argv[2])
  for await (const line of readline.createInterface({ input: process.stdin })) {
    process.stdout.write(JSON.stringify(await answer(driver, JSON.parse(line))) + '\n')
  }
  process.exit(0)
}

main()

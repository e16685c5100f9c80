// Sarama under trial: sarama BOOTSTRAP. The line protocol is described in ../../lines.py.
package main

import (
	"context"
	"errors"
	"os"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"kafka-gateway.local/drivers/lines"
)

const (
	pollFor      = 100 * time.Millisecond
	queueLength  = 10_000
	leaveTimeout = 10 * time.Second
)

var codecs = map[string]sarama.CompressionCodec{
	"none": sarama.CompressionNone, "gzip": sarama.CompressionGZIP, "snappy": sarama.CompressionSnappy,
	"lz4": sarama.CompressionLZ4, "zstd": sarama.CompressionZSTD,
}

type driver struct {
	bootstrap []string
	login     func(*sarama.Config)
	member    *member
	open      sarama.SyncProducer
}

func main() {
	d := &driver{bootstrap: []string{os.Args[1]}, login: func(*sarama.Config) {}}
	lines.Serve(d.act, nameOf)
}

func nameOf(err error) string {
	var refused sarama.ProducerErrors
	if errors.As(err, &refused) {
		err = refused[0].Err
	}
	var broker sarama.KError
	if errors.As(err, &broker) {
		return broker.Error()
	}
	return err.Error()
}

func (d *driver) config() *sarama.Config {
	settings := sarama.NewConfig()
	settings.Version = sarama.MaxVersion
	settings.Metadata.RefreshFrequency = time.Second
	settings.Metadata.AllowAutoTopicCreation = true
	d.login(settings)
	return settings
}

func (d *driver) act(r lines.Request) (any, error) {
	switch r.Do {
	case "log_in":
		return nil, d.logIn(r.Login)
	case "produce":
		return d.produce(r)
	case "open":
		return d.begin(r)
	case "finish":
		return nil, finish(d.open, r.End)
	case "copy":
		return d.copy(r)
	case "fetch":
		return d.fetch(r)
	case "bounds", "offset_at", "partitions":
		return d.offsets(r)
	case "join":
		return nil, d.join(r)
	case "poll":
		return d.member.poll(r)
	case "commit":
		d.member.commit()
		return nil, nil
	case "leave":
		return nil, d.member.leave()
	}
	admin, err := sarama.NewClusterAdmin(d.bootstrap, d.config())
	if err != nil {
		return nil, err
	}
	defer admin.Close()
	switch r.Do {
	case "committed", "set_offset", "describe_group", "groups", "delete_group":
		return groups(admin, r)
	}
	return topics(admin, r)
}

func topics(admin sarama.ClusterAdmin, r lines.Request) (any, error) {
	switch r.Do {
	case "create_topic":
		detail := &sarama.TopicDetail{NumPartitions: int32(r.Partitions), ReplicationFactor: 1}
		detail.ConfigEntries = map[string]*string{}
		for name, value := range r.Configs {
			detail.ConfigEntries[name] = &value
		}
		return nil, admin.CreateTopic(r.Topic, detail, false)
	case "delete_topic":
		return nil, admin.DeleteTopic(r.Topic)
	case "add_partitions":
		return nil, admin.CreatePartitions(r.Topic, int32(r.Partitions), nil, false)
	case "configs":
		wanted := sarama.ConfigResource{Type: sarama.TopicResource, Name: r.Topic, ConfigNames: r.Names}
		found, err := admin.DescribeConfig(wanted)
		values := map[string]string{}
		for _, entry := range found {
			values[entry.Name] = entry.Value
		}
		return values, err
	case "set_config":
		change := sarama.IncrementalAlterConfigsEntry{Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &r.Value}
		changes := map[string]sarama.IncrementalAlterConfigsEntry{r.Name: change}
		return nil, admin.IncrementalAlterConfig(sarama.TopicResource, r.Topic, changes, false)
	case "delete_records":
		return nil, admin.DeleteRecords(r.Topic, map[int32]int64{r.Partition: r.Offset})
	}
	return nil, lines.Unsupported("no such call")
}

func groups(admin sarama.ClusterAdmin, r lines.Request) (any, error) {
	switch r.Do {
	case "committed":
		found, err := admin.ListConsumerGroupOffsets(r.Group, map[string][]int32{r.Topic: {r.Partition}})
		if err != nil {
			return nil, err
		}
		block := found.GetBlock(r.Topic, r.Partition)
		if block == nil || block.Offset < 0 {
			return nil, nil
		}
		return block.Offset, nil
	case "set_offset":
		offset := sarama.OffsetAndMetadata{Offset: r.Offset, LeaderEpoch: -1}
		offsets := map[string]map[int32]sarama.OffsetAndMetadata{r.Topic: {r.Partition: offset}}
		answer, err := admin.AlterConsumerGroupOffsets(r.Group, offsets, nil)
		if err != nil {
			return nil, err
		}
		if refused := answer.Errors[r.Topic][r.Partition]; refused != sarama.ErrNoError {
			return nil, refused
		}
		return nil, nil
	case "describe_group":
		found, err := admin.DescribeConsumerGroups([]string{r.Group})
		if err != nil {
			return nil, err
		}
		return map[string]any{"state": found[0].State, "members": len(found[0].Members)}, nil
	case "groups":
		found, err := admin.ListConsumerGroups()
		names := []string{}
		for name := range found {
			if strings.HasPrefix(name, r.Prefix) {
				names = append(names, name)
			}
		}
		sort.Strings(names)
		return names, err
	}
	return nil, admin.DeleteConsumerGroup(r.Group)
}

func (d *driver) offsets(r lines.Request) (any, error) {
	settings := d.config()
	settings.Metadata.AllowAutoTopicCreation = false
	client, err := sarama.NewClient(d.bootstrap, settings)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	switch r.Do {
	case "partitions":
		found, err := client.Partitions(r.Topic)
		if errors.Is(err, sarama.ErrUnknownTopicOrPartition) {
			return nil, nil
		}
		return len(found), err
	case "bounds":
		start, err := client.GetOffset(r.Topic, r.Partition, sarama.OffsetOldest)
		if err != nil {
			return nil, err
		}
		end, err := client.GetOffset(r.Topic, r.Partition, sarama.OffsetNewest)
		return []int64{start, end}, err
	}
	found, err := client.GetOffset(r.Topic, r.Partition, r.Timestamp)
	if err != nil || found < 0 {
		return nil, err
	}
	return found, nil
}

func (d *driver) produce(r lines.Request) (any, error) {
	acks := map[string]sarama.RequiredAcks{"all": sarama.WaitForAll, "1": sarama.WaitForLocal, "0": sarama.NoResponse}
	settings := d.config()
	settings.Producer.RequiredAcks = acks[r.Acks]
	settings.Producer.Compression = codecs[r.Codec]
	settings.Producer.Flush.Frequency = 20 * time.Millisecond
	settings.Producer.MaxMessageBytes = 10_000_000
	settings.Producer.Return.Successes = true
	if r.Idempotent || r.Transaction != nil {
		settings.Producer.Idempotent = true
		settings.Net.MaxOpenRequests = 1
	}
	if r.Transaction != nil {
		settings.Producer.Transaction.ID = r.Transaction.ID
	}
	if r.Records[0].Partition != nil {
		settings.Producer.Partitioner = sarama.NewManualPartitioner
	}
	producer, err := sarama.NewSyncProducer(d.bootstrap, settings)
	if err != nil {
		return nil, err
	}
	defer producer.Close()
	if r.Transaction != nil {
		if err := producer.BeginTxn(); err != nil {
			return nil, err
		}
	}
	answers, err := send(producer, r)
	if err != nil || r.Transaction == nil {
		return answers, err
	}
	return answers, finish(producer, r.Transaction.End)
}

func finish(producer sarama.SyncProducer, end string) error {
	if end == "commit" {
		return producer.CommitTxn()
	}
	return producer.AbortTxn()
}

func (d *driver) transactional(r lines.Request) (sarama.SyncProducer, error) {
	settings := d.config()
	settings.Producer.RequiredAcks = sarama.WaitForAll
	settings.Producer.Return.Successes = true
	settings.Producer.Idempotent = true
	settings.Net.MaxOpenRequests = 1
	settings.Producer.Partitioner = sarama.NewManualPartitioner
	settings.Producer.Transaction.ID = r.ID
	settings.Producer.Transaction.Timeout = time.Duration(r.TimeoutMs) * time.Millisecond
	producer, err := sarama.NewSyncProducer(d.bootstrap, settings)
	if err != nil {
		return nil, err
	}
	return producer, producer.BeginTxn()
}

func (d *driver) begin(r lines.Request) (any, error) {
	producer, err := d.transactional(r)
	if err != nil {
		return nil, err
	}
	d.open = producer
	return send(producer, r)
}

func (d *driver) copy(r lines.Request) (any, error) {
	reading := r
	reading.Topics = []string{r.Source}
	reading.SessionTimeoutMs = 10_000
	if err := d.join(reading); err != nil {
		return nil, err
	}
	polled, err := d.member.poll(r)
	if err != nil {
		return nil, err
	}
	producer, err := d.transactional(r)
	if err != nil {
		return nil, err
	}
	defer producer.Close()
	records := polled.(lines.Polled).Records
	writing := r
	writing.Records = records
	if _, err := send(producer, writing); err != nil {
		return nil, err
	}
	next := map[int32]int64{}
	for _, record := range records {
		next[*record.Partition] = record.Offset + 1
	}
	offsets := map[string][]*sarama.PartitionOffsetMetadata{}
	for partition, offset := range next {
		row := &sarama.PartitionOffsetMetadata{Partition: partition, Offset: offset, LeaderEpoch: -1}
		offsets[r.Source] = append(offsets[r.Source], row)
	}
	if err := producer.AddOffsetsToTxn(offsets, r.Group); err != nil {
		return nil, err
	}
	if err := finish(producer, r.End); err != nil {
		return nil, err
	}
	return len(records), d.member.leave()
}

func send(producer sarama.SyncProducer, r lines.Request) ([][]int64, error) {
	messages := []*sarama.ProducerMessage{}
	for _, each := range r.Records {
		message := &sarama.ProducerMessage{Topic: r.Topic}
		if each.Key != nil {
			message.Key = sarama.ByteEncoder(each.Key)
		}
		if each.Value != nil {
			message.Value = sarama.ByteEncoder(each.Value)
		}
		for _, header := range each.Headers {
			message.Headers = append(message.Headers, sarama.RecordHeader{Key: []byte(header.Name), Value: header.Value})
		}
		if each.Partition != nil {
			message.Partition = *each.Partition
		}
		if each.Timestamp != nil {
			message.Timestamp = time.UnixMilli(*each.Timestamp)
		}
		messages = append(messages, message)
	}
	if err := producer.SendMessages(messages); err != nil {
		return nil, err
	}
	answers := [][]int64{}
	for _, message := range messages {
		answers = append(answers, lines.Position(message.Partition, message.Offset))
	}
	return answers, nil
}

func (d *driver) fetch(r lines.Request) (any, error) {
	settings := d.config()
	settings.Consumer.Return.Errors = true
	if r.MaxBytes != nil {
		settings.Consumer.Fetch.Default = *r.MaxBytes
	}
	settings.Consumer.IsolationLevel = isolation(r)
	consumer, err := sarama.NewConsumer(d.bootstrap, settings)
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	partition, err := consumer.ConsumePartition(r.Topic, r.Partition, r.Offset)
	if err != nil {
		return nil, err
	}
	defer partition.Close()
	found := []lines.Record{}
	deadline := time.After(time.Duration(r.TimeoutMs) * time.Millisecond)
	for len(found) < r.Count {
		select {
		case message := <-partition.Messages():
			found = append(found, described(message))
		case failed := <-partition.Errors():
			return nil, failed.Err
		case <-deadline:
			return found, nil
		}
	}
	return found, nil
}

func isolation(r lines.Request) sarama.IsolationLevel {
	if r.Isolation == "read_committed" || r.Do == "copy" {
		return sarama.ReadCommitted
	}
	return sarama.ReadUncommitted
}

func described(message *sarama.ConsumerMessage) lines.Record {
	timestamp := message.Timestamp.UnixMilli()
	record := lines.Record{
		Partition: &message.Partition, Offset: message.Offset, Timestamp: &timestamp, Key: message.Key,
		Value: message.Value, Headers: []lines.Header{},
	}
	for _, header := range message.Headers {
		record.Headers = append(record.Headers, lines.Header{Name: string(header.Key), Value: header.Value})
	}
	return record
}

// member of a group; it is the handler of its sessions.
type member struct {
	group    sarama.ConsumerGroup
	stop     context.CancelFunc
	done     chan struct{}
	messages chan *sarama.ConsumerMessage

	lock    sync.Mutex
	session sarama.ConsumerGroupSession
}

func (d *driver) join(r lines.Request) error {
	switch {
	case r.Pattern != nil:
		return lines.Unsupported("no subscription by pattern")
	case r.Assignor != nil:
		return lines.Unsupported("no cooperative rebalancing")
	case r.Protocol != nil:
		return lines.Unsupported("no KIP-848")
	}
	settings := d.config()
	settings.Consumer.Offsets.Initial = sarama.OffsetOldest
	settings.Consumer.Offsets.AutoCommit.Enable = false
	settings.Consumer.IsolationLevel = isolation(r)
	settings.Consumer.Group.Session.Timeout = time.Duration(r.SessionTimeoutMs) * time.Millisecond
	settings.Consumer.Group.Heartbeat.Interval = 500 * time.Millisecond
	if r.InstanceID != nil {
		settings.Consumer.Group.InstanceId = *r.InstanceID
	}
	group, err := sarama.NewConsumerGroup(d.bootstrap, r.Group, settings)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	m := &member{group: group, stop: stop, done: make(chan struct{})}
	m.messages = make(chan *sarama.ConsumerMessage, queueLength)
	d.member = m
	go func() {
		defer close(m.done)
		for ctx.Err() == nil {
			if err := group.Consume(ctx, r.Topics, m); err != nil {
				println(err.Error())
			}
		}
	}()
	return nil
}

// Setup implements sarama.ConsumerGroupHandler.
func (m *member) Setup(session sarama.ConsumerGroupSession) error {
	m.lock.Lock()
	defer m.lock.Unlock()
	m.session = session
	return nil
}

// Cleanup implements sarama.ConsumerGroupHandler.
func (m *member) Cleanup(sarama.ConsumerGroupSession) error {
	m.lock.Lock()
	defer m.lock.Unlock()
	m.session = nil
	return nil
}

// ConsumeClaim implements sarama.ConsumerGroupHandler.
func (m *member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for message := range claim.Messages() {
		select {
		case m.messages <- message:
		case <-session.Context().Done():
			return nil
		}
	}
	return nil
}

func (m *member) poll(r lines.Request) (any, error) {
	result := lines.Polled{Records: []lines.Record{}}
	deadline := time.After(time.Duration(r.TimeoutMs) * time.Millisecond)
	for {
		select {
		case message := <-m.messages:
			result.Records = append(result.Records, described(message))
			m.mark(message)
		case <-deadline:
			result.Assigned = m.held()
			return result, nil
		case <-time.After(pollFor):
		}
		result.Assigned = m.held()
		if len(result.Records) >= r.Count && (r.Assigned == nil || *r.Assigned == len(result.Assigned)) {
			return result, nil
		}
	}
}

func (m *member) mark(message *sarama.ConsumerMessage) {
	m.lock.Lock()
	defer m.lock.Unlock()
	if m.session != nil {
		m.session.MarkMessage(message, "")
	}
}

func (m *member) commit() {
	m.lock.Lock()
	defer m.lock.Unlock()
	if m.session != nil {
		m.session.Commit()
	}
}

func (m *member) held() [][]any {
	m.lock.Lock()
	defer m.lock.Unlock()
	held := [][]any{}
	if m.session != nil {
		for topic, partitions := range m.session.Claims() {
			for _, partition := range partitions {
				held = append(held, []any{topic, partition})
			}
		}
	}
	return held
}

func (m *member) leave() error {
	m.stop()
	select {
	case <-m.done:
	case <-time.After(leaveTimeout):
	}
	return m.group.Close()
}

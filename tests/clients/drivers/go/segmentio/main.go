// Segmentio's kafka-go under trial: segmentio BOOTSTRAP. The line protocol is described in ../../lines.py.
package main

import (
	"context"
	"errors"
	"os"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"

	"kafka-gateway.local/drivers/lines"
)

const (
	timeout     = 30 * time.Second
	pollFor     = 100 * time.Millisecond
	queueLength = 10_000
)

var codecs = map[string]kafka.Compression{
	"gzip": kafka.Gzip, "snappy": kafka.Snappy, "lz4": kafka.Lz4, "zstd": kafka.Zstd,
}

type driver struct {
	bootstrap string
	client    *kafka.Client
	dialer    *kafka.Dialer
	member    *member
}

func main() {
	d := &driver{bootstrap: os.Args[1], dialer: kafka.DefaultDialer}
	d.client = &kafka.Client{Addr: kafka.TCP(d.bootstrap), Timeout: timeout}
	lines.Serve(d.act, nameOf)
}

func nameOf(err error) string {
	var several kafka.WriteErrors
	if errors.As(err, &several) {
		for _, each := range several {
			if each != nil {
				err = each
				break
			}
		}
	}
	var tooLarge kafka.MessageTooLargeError
	if errors.As(err, &tooLarge) {
		return "MessageTooLargeError"
	}
	var broker kafka.Error
	if errors.As(err, &broker) {
		return broker.Title()
	}
	return err.Error()
}

func (d *driver) act(r lines.Request) (any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	switch r.Do {
	case "log_in":
		return nil, d.logIn(ctx, r.Login)
	case "produce":
		return d.produce(ctx, r)
	case "fetch":
		return d.fetch(r)
	case "bounds", "offset_at":
		return d.offsets(ctx, r)
	case "join":
		return nil, d.join(r)
	case "poll":
		return d.member.poll(r)
	case "commit":
		return nil, d.member.commit()
	case "leave":
		return nil, d.member.leave()
	case "committed", "set_offset", "describe_group", "groups", "delete_group":
		return d.groups(ctx, r)
	case "configs", "set_config":
		return d.configs(ctx, r)
	}
	return d.topics(ctx, r)
}

func (d *driver) topics(ctx context.Context, r lines.Request) (any, error) {
	switch r.Do {
	case "create_topic":
		topic := kafka.TopicConfig{Topic: r.Topic, NumPartitions: r.Partitions, ReplicationFactor: 1}
		for name, value := range r.Configs {
			topic.ConfigEntries = append(topic.ConfigEntries, kafka.ConfigEntry{ConfigName: name, ConfigValue: value})
		}
		created, err := d.client.CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{topic}})
		if err != nil {
			return nil, err
		}
		return nil, created.Errors[r.Topic]
	case "delete_topic":
		deleted, err := d.client.DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Topics: []string{r.Topic}})
		if err != nil {
			return nil, err
		}
		return nil, deleted.Errors[r.Topic]
	case "add_partitions":
		total := kafka.TopicPartitionsConfig{Name: r.Topic, Count: int32(r.Partitions)}
		request := &kafka.CreatePartitionsRequest{Topics: []kafka.TopicPartitionsConfig{total}}
		added, err := d.client.CreatePartitions(ctx, request)
		if err != nil {
			return nil, err
		}
		return nil, added.Errors[r.Topic]
	case "partitions":
		found, err := d.client.Metadata(ctx, &kafka.MetadataRequest{})
		if err != nil {
			return nil, err
		}
		for _, topic := range found.Topics {
			if topic.Name == r.Topic {
				return len(topic.Partitions), nil
			}
		}
		return nil, nil
	}
	return nil, lines.Unsupported("no such call")
}

func (d *driver) configs(ctx context.Context, r lines.Request) (any, error) {
	if r.Do == "set_config" {
		change := kafka.IncrementalAlterConfigsRequestConfig{
			Name: r.Name, Value: r.Value, ConfigOperation: kafka.ConfigOperationSet,
		}
		resource := kafka.IncrementalAlterConfigsRequestResource{
			ResourceType: kafka.ResourceTypeTopic, ResourceName: r.Topic,
			Configs: []kafka.IncrementalAlterConfigsRequestConfig{change},
		}
		changed, err := d.client.IncrementalAlterConfigs(ctx, &kafka.IncrementalAlterConfigsRequest{
			Resources: []kafka.IncrementalAlterConfigsRequestResource{resource},
		})
		if err != nil {
			return nil, err
		}
		return nil, changed.Resources[0].Error
	}
	resource := kafka.DescribeConfigRequestResource{
		ResourceType: kafka.ResourceTypeTopic, ResourceName: r.Topic, ConfigNames: r.Names,
	}
	found, err := d.client.DescribeConfigs(ctx, &kafka.DescribeConfigsRequest{
		Resources: []kafka.DescribeConfigRequestResource{resource},
	})
	if err != nil {
		return nil, err
	}
	values := map[string]string{}
	for _, entry := range found.Resources[0].ConfigEntries {
		values[entry.ConfigName] = entry.ConfigValue
	}
	return values, found.Resources[0].Error
}

func (d *driver) groups(ctx context.Context, r lines.Request) (any, error) {
	switch r.Do {
	case "committed":
		topics := map[string][]int{r.Topic: {int(r.Partition)}}
		found, err := d.client.OffsetFetch(ctx, &kafka.OffsetFetchRequest{GroupID: r.Group, Topics: topics})
		if err != nil || found.Topics[r.Topic][0].CommittedOffset < 0 {
			return nil, err
		}
		return found.Topics[r.Topic][0].CommittedOffset, found.Topics[r.Topic][0].Error
	case "set_offset":
		topics := map[string][]kafka.OffsetCommit{r.Topic: {{Partition: int(r.Partition), Offset: r.Offset}}}
		request := &kafka.OffsetCommitRequest{GroupID: r.Group, GenerationID: -1, Topics: topics}
		committed, err := d.client.OffsetCommit(ctx, request)
		if err != nil {
			return nil, err
		}
		return nil, committed.Topics[r.Topic][0].Error
	case "describe_group":
		found, err := d.client.DescribeGroups(ctx, &kafka.DescribeGroupsRequest{GroupIDs: []string{r.Group}})
		if err != nil {
			return nil, err
		}
		group := found.Groups[0]
		return map[string]any{"state": group.GroupState, "members": len(group.Members)}, group.Error
	case "groups":
		found, err := d.client.ListGroups(ctx, &kafka.ListGroupsRequest{})
		if err != nil {
			return nil, err
		}
		names := []string{}
		for _, group := range found.Groups {
			if strings.HasPrefix(group.GroupID, r.Prefix) {
				names = append(names, group.GroupID)
			}
		}
		sort.Strings(names)
		return names, found.Error
	}
	deleted, err := d.client.DeleteGroups(ctx, &kafka.DeleteGroupsRequest{GroupIDs: []string{r.Group}})
	if err != nil {
		return nil, err
	}
	return nil, deleted.Errors[r.Group]
}

func (d *driver) offsets(ctx context.Context, r lines.Request) (any, error) {
	partition := int(r.Partition)
	asked := []kafka.OffsetRequest{kafka.FirstOffsetOf(partition), kafka.LastOffsetOf(partition)}
	if r.Do == "offset_at" {
		asked = []kafka.OffsetRequest{kafka.TimeOffsetOf(partition, time.UnixMilli(r.Timestamp))}
	}
	request := &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{r.Topic: asked}}
	found, err := d.client.ListOffsets(ctx, request)
	if err != nil {
		return nil, err
	}
	offsets := found.Topics[r.Topic][0]
	if r.Do == "bounds" {
		return []int64{offsets.FirstOffset, offsets.LastOffset}, offsets.Error
	}
	for offset := range offsets.Offsets {
		if offset >= 0 {
			return offset, offsets.Error
		}
	}
	return nil, offsets.Error
}

func (d *driver) produce(ctx context.Context, r lines.Request) (any, error) {
	if r.Idempotent || r.Transaction != nil {
		return nil, lines.Unsupported("no idempotent producer")
	}
	acks := map[string]kafka.RequiredAcks{"all": kafka.RequireAll, "1": kafka.RequireOne, "0": kafka.RequireNone}
	answers := make([][]int64, len(r.Records))
	writer := &kafka.Writer{
		Addr: d.client.Addr, Transport: d.client.Transport, Topic: r.Topic, RequiredAcks: acks[r.Acks], Compression: codecs[r.Codec],
		BatchTimeout: 20 * time.Millisecond, BatchSize: queueLength, BatchBytes: 10_000_000, MaxAttempts: 5,
		AllowAutoTopicCreation: true, Balancer: &kafka.Hash{},
		Completion: func(messages []kafka.Message, _ error) {
			for _, message := range messages {
				answers[message.WriterData.(int)] = lines.Position(int32(message.Partition), message.Offset)
			}
		},
	}
	if r.Records[0].Partition != nil {
		writer.Balancer = kafka.BalancerFunc(func(message kafka.Message, _ ...int) int {
			return int(*r.Records[message.WriterData.(int)].Partition)
		})
	}
	messages := []kafka.Message{}
	for index, each := range r.Records {
		message := kafka.Message{Key: each.Key, Value: each.Value, WriterData: index}
		for _, header := range each.Headers {
			message.Headers = append(message.Headers, kafka.Header{Key: header.Name, Value: header.Value})
		}
		if each.Timestamp != nil {
			message.Time = time.UnixMilli(*each.Timestamp)
		}
		messages = append(messages, message)
	}
	err := writer.WriteMessages(ctx, messages...)
	return answers, errors.Join(err, writer.Close())
}

func (d *driver) reader(topic string, partition int, offset int64, r lines.Request) (*kafka.Reader, error) {
	settings := kafka.ReaderConfig{
		Brokers: []string{d.bootstrap}, Dialer: d.dialer, Topic: topic, Partition: partition,
		MinBytes: 1, MaxBytes: 10_000_000,
		MaxWait: 200 * time.Millisecond, OffsetOutOfRangeError: true, MaxAttempts: 2,
	}
	if r.MaxBytes != nil {
		settings.MaxBytes = int(*r.MaxBytes)
	}
	if r.Isolation == "read_committed" {
		settings.IsolationLevel = kafka.ReadCommitted
	}
	reader := kafka.NewReader(settings)
	return reader, reader.SetOffset(offset)
}

func (d *driver) fetch(r lines.Request) (any, error) {
	reader, err := d.reader(r.Topic, int(r.Partition), r.Offset, r)
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(r.TimeoutMs)*time.Millisecond)
	defer cancel()
	found := []lines.Record{}
	for len(found) < r.Count {
		message, err := reader.ReadMessage(ctx)
		if errors.Is(err, context.DeadlineExceeded) {
			break
		}
		if err != nil {
			return nil, err
		}
		found = append(found, described(message))
	}
	return found, nil
}

func described(message kafka.Message) lines.Record {
	partition, timestamp := int32(message.Partition), message.Time.UnixMilli()
	record := lines.Record{
		Partition: &partition, Offset: message.Offset, Timestamp: &timestamp, Key: message.Key, Value: message.Value,
		Headers: []lines.Header{},
	}
	for _, header := range message.Headers {
		record.Headers = append(record.Headers, lines.Header{Name: header.Key, Value: header.Value})
	}
	return record
}

// member of a group.
type member struct {
	group    *kafka.ConsumerGroup
	messages chan kafka.Message

	lock       sync.Mutex
	generation *kafka.Generation
	read       map[string]map[int]int64
}

func (d *driver) join(r lines.Request) error {
	switch {
	case r.Pattern != nil:
		return lines.Unsupported("no subscription by pattern")
	case r.InstanceID != nil:
		return lines.Unsupported("no static membership")
	case r.Assignor != nil:
		return lines.Unsupported("no cooperative rebalancing")
	case r.Protocol != nil:
		return lines.Unsupported("no KIP-848")
	}
	group, err := kafka.NewConsumerGroup(kafka.ConsumerGroupConfig{
		ID: r.Group, Brokers: []string{d.bootstrap}, Dialer: d.dialer, Topics: r.Topics, StartOffset: kafka.FirstOffset,
		HeartbeatInterval: 500 * time.Millisecond, SessionTimeout: time.Duration(r.SessionTimeoutMs) * time.Millisecond,
		RebalanceTimeout:      time.Duration(r.SessionTimeoutMs) * time.Millisecond,
		WatchPartitionChanges: true, PartitionWatchInterval: time.Second, JoinGroupBackoff: time.Second,
	})
	if err != nil {
		return err
	}
	d.member = &member{group: group, messages: make(chan kafka.Message, queueLength)}
	go d.follow(d.member)
	return nil
}

// follow serves one generation after the other until the group is closed.
func (d *driver) follow(m *member) {
	for {
		generation, err := m.group.Next(context.Background())
		if errors.Is(err, kafka.ErrGroupClosed) {
			return
		}
		if err != nil {
			println(err.Error())
			continue
		}
		m.enter(generation)
		for topic, partitions := range generation.Assignments {
			for _, partition := range partitions {
				generation.Start(func(ctx context.Context) { d.read(ctx, m, topic, partition) })
			}
		}
	}
}

func (d *driver) read(ctx context.Context, m *member, topic string, from kafka.PartitionAssignment) {
	reader, err := d.reader(topic, from.ID, from.Offset, lines.Request{})
	if err != nil {
		println(err.Error())
		return
	}
	defer reader.Close()
	for {
		message, err := reader.ReadMessage(ctx)
		if err != nil {
			return
		}
		select {
		case m.messages <- message:
		case <-ctx.Done():
			return
		}
	}
}

func (m *member) enter(generation *kafka.Generation) {
	m.lock.Lock()
	defer m.lock.Unlock()
	m.generation = generation
	m.read = map[string]map[int]int64{}
	generation.Start(func(ctx context.Context) {
		<-ctx.Done()
		m.lock.Lock()
		defer m.lock.Unlock()
		m.generation = nil
	})
}

func (m *member) poll(r lines.Request) (any, error) {
	result := lines.Polled{Records: []lines.Record{}}
	deadline := time.After(time.Duration(r.TimeoutMs) * time.Millisecond)
	for {
		select {
		case message := <-m.messages:
			result.Records = append(result.Records, described(message))
			m.note(message)
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

func (m *member) note(message kafka.Message) {
	m.lock.Lock()
	defer m.lock.Unlock()
	if m.read[message.Topic] == nil {
		m.read[message.Topic] = map[int]int64{}
	}
	m.read[message.Topic][message.Partition] = message.Offset + 1
}

func (m *member) commit() error {
	m.lock.Lock()
	defer m.lock.Unlock()
	if m.generation == nil {
		return nil
	}
	return m.generation.CommitOffsets(m.read)
}

func (m *member) held() [][]any {
	m.lock.Lock()
	defer m.lock.Unlock()
	held := [][]any{}
	if m.generation != nil {
		for topic, partitions := range m.generation.Assignments {
			for _, partition := range partitions {
				held = append(held, []any{topic, partition.ID})
			}
		}
	}
	return held
}

func (m *member) leave() error { return m.group.Close() }

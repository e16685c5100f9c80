// Franz-go under trial: franz BOOTSTRAP. The line protocol is described in ../../lines.py.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"kafka-gateway.local/drivers/lines"
)

const (
	timeout = 30 * time.Second
	pollFor = 100 * time.Millisecond
)

var codecs = map[string]kgo.CompressionCodec{
	"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
	"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
}

type driver struct {
	server []kgo.Opt
	admin  *kadm.Client
	member *kgo.Client
	open   *kgo.Client

	lock     sync.Mutex
	assigned map[string]map[int32]bool
}

func main() {
	d := &driver{server: []kgo.Opt{kgo.SeedBrokers(os.Args[1])}, assigned: map[string]map[int32]bool{}}
	client, err := d.client()
	if err != nil {
		panic(err)
	}
	d.admin = kadm.NewClient(client)
	lines.Serve(d.act, nameOf)
}

func nameOf(err error) string {
	var broker *kerr.Error
	if errors.As(err, &broker) {
		return broker.Message
	}
	return err.Error()
}

func (d *driver) client(options ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append(slices.Clone(d.server), options...)...)
}

func (d *driver) act(r lines.Request) (any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	switch r.Do {
	case "log_in":
		return nil, d.logIn(ctx, r.Login)
	case "produce":
		return d.produce(ctx, r)
	case "open":
		return d.begin(ctx, r)
	case "finish":
		return nil, d.open.EndTransaction(ctx, kgo.TransactionEndTry(r.End == "commit"))
	case "copy":
		return d.copy(ctx, r)
	case "fetch":
		return d.fetch(r)
	case "join":
		return nil, d.join(r)
	case "poll":
		return d.poll(r)
	case "commit":
		return nil, d.member.CommitUncommittedOffsets(ctx)
	case "leave":
		d.member.Close()
		return nil, nil
	case "bounds", "offset_at", "committed", "set_offset":
		return d.offsets(ctx, r)
	case "describe_group", "groups", "delete_group":
		return d.groups(ctx, r)
	}
	return d.topics(ctx, r)
}

func (d *driver) topics(ctx context.Context, r lines.Request) (any, error) {
	switch r.Do {
	case "create_topic":
		configs := map[string]*string{}
		for name, value := range r.Configs {
			configs[name] = &value
		}
		created, err := d.admin.CreateTopic(ctx, int32(r.Partitions), 1, configs, r.Topic)
		return nil, errors.Join(err, created.Err)
	case "delete_topic":
		deleted, err := d.admin.DeleteTopic(ctx, r.Topic)
		return nil, errors.Join(err, deleted.Err)
	case "add_partitions":
		added, err := d.admin.UpdatePartitions(ctx, r.Partitions, r.Topic)
		return nil, errors.Join(err, added[r.Topic].Err)
	case "partitions":
		found, err := d.admin.ListTopics(ctx, r.Topic)
		if err != nil || found[r.Topic].Err != nil {
			return nil, err
		}
		return len(found[r.Topic].Partitions), nil
	case "configs":
		found, err := d.admin.DescribeTopicConfigs(ctx, r.Topic)
		if err != nil {
			return nil, err
		}
		values := map[string]string{}
		for _, name := range r.Names {
			for _, config := range found[0].Configs {
				if config.Key == name {
					values[name] = config.MaybeValue()
				}
			}
		}
		return values, found[0].Err
	case "set_config":
		change := kadm.AlterConfig{Op: kadm.SetConfig, Name: r.Name, Value: &r.Value}
		changed, err := d.admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{change}, r.Topic)
		if err != nil {
			return nil, err
		}
		return nil, changed[0].Err
	case "delete_records":
		before := kadm.Offsets{}
		before.AddOffset(r.Topic, r.Partition, r.Offset, -1)
		deleted, err := d.admin.DeleteRecords(ctx, before)
		return nil, errors.Join(err, deleted.Error())
	}
	return nil, lines.Unsupported("no such call")
}

func (d *driver) offsets(ctx context.Context, r lines.Request) (any, error) {
	switch r.Do {
	case "bounds":
		starts, err := d.admin.ListStartOffsets(ctx, r.Topic)
		if err != nil {
			return nil, err
		}
		ends, err := d.admin.ListEndOffsets(ctx, r.Topic)
		if err != nil {
			return nil, err
		}
		start, end := starts[r.Topic][r.Partition], ends[r.Topic][r.Partition]
		return []int64{start.Offset, end.Offset}, errors.Join(start.Err, end.Err)
	case "offset_at":
		found, err := d.admin.ListOffsetsAfterMilli(ctx, r.Timestamp, r.Topic)
		if err != nil {
			return nil, err
		}
		at := found[r.Topic][r.Partition]
		if at.Timestamp == -1 {
			return nil, at.Err
		}
		return at.Offset, at.Err
	case "committed":
		found, err := d.admin.FetchOffsets(ctx, r.Group)
		if err != nil {
			return nil, err
		}
		at, ok := found.Lookup(r.Topic, r.Partition)
		if !ok || at.At < 0 {
			return nil, nil
		}
		return at.At, at.Err
	}
	offsets := kadm.Offsets{}
	offsets.AddOffset(r.Topic, r.Partition, r.Offset, -1)
	committed, err := d.admin.CommitOffsets(ctx, r.Group, offsets)
	return nil, errors.Join(err, committed.Error())
}

func (d *driver) groups(ctx context.Context, r lines.Request) (any, error) {
	switch r.Do {
	case "describe_group":
		found, err := d.admin.DescribeGroups(ctx, r.Group)
		if err != nil {
			return nil, err
		}
		group := found[r.Group]
		return map[string]any{"state": group.State, "members": len(group.Members)}, group.Err
	case "groups":
		found, err := d.admin.ListGroups(ctx)
		names := []string{}
		for _, name := range found.Groups() {
			if strings.HasPrefix(name, r.Prefix) {
				names = append(names, name)
			}
		}
		sort.Strings(names)
		return names, err
	}
	deleted, err := d.admin.DeleteGroup(ctx, r.Group)
	return nil, errors.Join(err, deleted.Err)
}

func (d *driver) produce(ctx context.Context, r lines.Request) (any, error) {
	acks := map[string]kgo.Acks{"all": kgo.AllISRAcks(), "1": kgo.LeaderAck(), "0": kgo.NoAck()}
	options := []kgo.Opt{
		kgo.RequiredAcks(acks[r.Acks]), kgo.ProducerBatchCompression(codecs[r.Codec]),
		kgo.ProducerLinger(20 * time.Millisecond), kgo.ProducerBatchMaxBytes(10_000_000),
		kgo.AllowAutoTopicCreation(),
	}
	if !r.Idempotent && r.Transaction == nil {
		options = append(options, kgo.DisableIdempotentWrite())
	}
	if r.Transaction != nil {
		options = append(options, kgo.TransactionalID(r.Transaction.ID))
	}
	if r.Records[0].Partition != nil {
		options = append(options, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	}
	producer, err := d.client(options...)
	if err != nil {
		return nil, err
	}
	defer producer.Close()
	if r.Transaction != nil {
		if err := producer.BeginTransaction(); err != nil {
			return nil, err
		}
	}
	answers, err := send(ctx, producer, r)
	if err == nil && r.Transaction != nil {
		err = producer.EndTransaction(ctx, kgo.TransactionEndTry(r.Transaction.End == "commit"))
	}
	return answers, err
}

func (d *driver) begin(ctx context.Context, r lines.Request) (answers any, err error) {
	d.open, err = d.client(
		kgo.TransactionalID(r.ID), kgo.TransactionTimeout(time.Duration(r.TimeoutMs)*time.Millisecond),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
	)
	if err == nil {
		err = d.open.BeginTransaction()
	}
	if err != nil {
		return nil, err
	}
	return send(ctx, d.open, r)
}

func (d *driver) copy(ctx context.Context, r lines.Request) (any, error) {
	session, err := kgo.NewGroupTransactSession(append(slices.Clone(d.server),
		kgo.TransactionalID(r.ID), kgo.ConsumerGroup(r.Group), kgo.ConsumeTopics(r.Source),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.RequireStableFetchOffsets(),
	)...)
	if err != nil {
		return nil, err
	}
	defer session.Close()
	if err := session.Begin(); err != nil {
		return nil, err
	}
	copied := 0
	deadline := time.Now().Add(time.Duration(r.TimeoutMs) * time.Millisecond)
	for copied < r.Count && time.Now().Before(deadline) {
		polling, cancel := context.WithTimeout(ctx, pollFor)
		fetches := session.PollFetches(polling)
		cancel()
		for _, record := range fetches.Records() {
			copied++
			session.Produce(ctx, &kgo.Record{Topic: r.Topic, Key: record.Key, Value: record.Value}, nil)
		}
	}
	if err := session.Client().Flush(ctx); err != nil {
		return nil, err
	}
	_, err = session.End(ctx, kgo.TransactionEndTry(r.End == "commit"))
	return copied, err
}

func send(ctx context.Context, producer *kgo.Client, r lines.Request) ([][]int64, error) {
	records := []*kgo.Record{}
	for _, each := range r.Records {
		record := &kgo.Record{Topic: r.Topic, Key: each.Key, Value: each.Value}
		for _, header := range each.Headers {
			record.Headers = append(record.Headers, kgo.RecordHeader{Key: header.Name, Value: header.Value})
		}
		if each.Partition != nil {
			record.Partition = *each.Partition
		}
		if each.Timestamp != nil {
			record.Timestamp = time.UnixMilli(*each.Timestamp)
		}
		records = append(records, record)
	}
	if err := producer.ProduceSync(ctx, records...).FirstErr(); err != nil {
		return nil, err
	}
	answers := [][]int64{}
	for _, record := range records {
		answers = append(answers, lines.Position(record.Partition, record.Offset))
	}
	return answers, nil
}

func (d *driver) fetch(r lines.Request) (any, error) {
	at := map[string]map[int32]kgo.Offset{r.Topic: {r.Partition: kgo.NewOffset().At(r.Offset)}}
	options := []kgo.Opt{kgo.ConsumePartitions(at), kgo.ConsumeResetOffset(kgo.NoResetOffset())}
	if r.MaxBytes != nil {
		options = append(options, kgo.FetchMaxPartitionBytes(*r.MaxBytes))
	}
	if r.Isolation == "read_committed" {
		options = append(options, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	}
	consumer, err := d.client(options...)
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	found := []lines.Record{}
	deadline := time.Now().Add(time.Duration(r.TimeoutMs) * time.Millisecond)
	for len(found) < r.Count && time.Now().Before(deadline) {
		records, err := take(consumer, r.Count-len(found))
		if err != nil {
			return nil, err
		}
		found = append(found, records...)
	}
	return found, nil
}

func (d *driver) join(r lines.Request) (err error) {
	if r.Protocol != nil {
		return lines.Unsupported("KIP-848 is not on by default")
	}
	topics := r.Topics
	options := []kgo.Opt{
		kgo.ConsumerGroup(r.Group), kgo.DisableAutoCommit(), kgo.HeartbeatInterval(500 * time.Millisecond),
		kgo.SessionTimeout(time.Duration(r.SessionTimeoutMs) * time.Millisecond),
		kgo.MetadataMaxAge(time.Second), kgo.MetadataMinAge(500 * time.Millisecond),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.OnPartitionsAssigned(d.note(true)), kgo.OnPartitionsRevoked(d.note(false)), kgo.OnPartitionsLost(d.note(false)),
	}
	if r.Pattern != nil {
		topics = []string{"^" + *r.Pattern}
		options = append(options, kgo.ConsumeRegex())
	}
	if r.Assignor == nil {
		options = append(options, kgo.Balancers(kgo.RangeBalancer()))
	} else {
		options = append(options, kgo.Balancers(kgo.CooperativeStickyBalancer()))
	}
	if r.InstanceID != nil {
		options = append(options, kgo.InstanceID(*r.InstanceID))
	}
	d.assigned = map[string]map[int32]bool{}
	d.member, err = d.client(append(options, kgo.ConsumeTopics(topics...))...)
	return err
}

func (d *driver) note(held bool) func(context.Context, *kgo.Client, map[string][]int32) {
	return func(_ context.Context, _ *kgo.Client, changed map[string][]int32) {
		d.lock.Lock()
		defer d.lock.Unlock()
		for topic, partitions := range changed {
			if d.assigned[topic] == nil {
				d.assigned[topic] = map[int32]bool{}
			}
			for _, partition := range partitions {
				if held {
					d.assigned[topic][partition] = true
				} else {
					delete(d.assigned[topic], partition)
				}
			}
		}
	}
}

func (d *driver) poll(r lines.Request) (any, error) {
	result := lines.Polled{Records: []lines.Record{}}
	deadline := time.Now().Add(time.Duration(r.TimeoutMs) * time.Millisecond)
	for time.Now().Before(deadline) {
		records, err := take(d.member, 100)
		if err != nil {
			return nil, err
		}
		result.Records = append(result.Records, records...)
		result.Assigned = d.held()
		if len(result.Records) >= r.Count && (r.Assigned == nil || *r.Assigned == len(result.Assigned)) {
			break
		}
	}
	return result, nil
}

func (d *driver) held() [][]any {
	d.lock.Lock()
	defer d.lock.Unlock()
	held := [][]any{}
	for topic, partitions := range d.assigned {
		for partition := range partitions {
			held = append(held, []any{topic, partition})
		}
	}
	sort.Slice(held, func(i, j int) bool { return fmt.Sprint(held[i]) < fmt.Sprint(held[j]) })
	return held
}

func take(consumer *kgo.Client, count int) ([]lines.Record, error) {
	ctx, cancel := context.WithTimeout(context.Background(), pollFor)
	defer cancel()
	fetches := consumer.PollRecords(ctx, count)
	for _, failed := range fetches.Errors() {
		if !errors.Is(failed.Err, context.DeadlineExceeded) {
			return nil, failed.Err
		}
	}
	found := []lines.Record{}
	for _, record := range fetches.Records() {
		timestamp := record.Timestamp.UnixMilli()
		described := lines.Record{
			Partition: &record.Partition, Offset: record.Offset, Timestamp: &timestamp, Key: record.Key, Value: record.Value,
			Headers: []lines.Header{},
		}
		for _, header := range record.Headers {
			described.Headers = append(described.Headers, lines.Header{Name: header.Key, Value: header.Value})
		}
		found = append(found, described)
	}
	return found, nil
}

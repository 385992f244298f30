package broker

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

// Ends are the ends of a topic's partitions at the time of End: everything written before it lies in front of them.
type Ends struct {
	Topic string
	// Offsets maps each partition that holds records to the offset behind its last one. Partitions without records are left out.
	Offsets map[int32]int64
}

// End reads where the partitions of topic end now. It fails rather than leave out a partition that it could not ask.
func (a *Admin) End(ctx context.Context, topic string) (Ends, error) {
	ends, err := a.offsets(ctx, topic, a.admin.ListEndOffsets)
	if err != nil {
		return Ends{}, fmt.Errorf("read the end of Kafka topic %s: %w", topic, err)
	}
	starts, err := a.offsets(ctx, topic, a.admin.ListStartOffsets)
	if err != nil {
		return Ends{}, fmt.Errorf("read the start of Kafka topic %s: %w", topic, err)
	}
	result := Ends{Topic: topic, Offsets: make(map[int32]int64, len(ends))}
	for partition, end := range ends {
		if starts[partition] < end {
			result.Offsets[partition] = end
		}
	}
	return result, nil
}

// Passed reports whether group has committed everything in front of ends: it has read and stored whatever was written before End. A partition on
// which the group has committed nothing has not been passed, unless retention has deleted all that was in front of its end.
func (a *Admin) Passed(ctx context.Context, group string, ends Ends) (bool, error) {
	if len(ends.Offsets) == 0 {
		return true, nil
	}
	committed, err := a.committed(ctx, group, ends.Topic)
	if err != nil {
		return false, err
	}
	var behind []int32
	for partition, end := range ends.Offsets {
		if at, ok := committed[partition]; !ok || at < end {
			behind = append(behind, partition)
		}
	}
	if len(behind) == 0 {
		return true, nil
	}
	starts, err := a.offsets(ctx, ends.Topic, a.admin.ListStartOffsets)
	if err != nil {
		return false, fmt.Errorf("read the start of Kafka topic %s: %w", ends.Topic, err)
	}
	for _, partition := range behind {
		if starts[partition] < ends.Offsets[partition] {
			return false, nil
		}
	}
	return true, nil
}

// Lag returns how many records of each partition of topic the group has not committed.
func (a *Admin) Lag(ctx context.Context, group, topic string) (map[int32]int64, error) {
	ends, err := a.End(ctx, topic)
	if err != nil {
		return nil, err
	}
	committed, err := a.committed(ctx, group, topic)
	if err != nil {
		return nil, err
	}
	starts, err := a.offsets(ctx, topic, a.admin.ListStartOffsets)
	if err != nil {
		return nil, fmt.Errorf("read the start of Kafka topic %s: %w", topic, err)
	}
	lag := make(map[int32]int64, len(starts))
	for partition, start := range starts {
		at, ok := committed[partition]
		if !ok || at < start {
			at = start // where such a group begins
		}
		lag[partition] = max(0, ends.Offsets[partition]-at)
	}
	return lag, nil
}

// committed returns the offsets that a group has committed; partitions without one are left out.
func (a *Admin) committed(ctx context.Context, group, topic string) (map[int32]int64, error) {
	responses, err := a.admin.FetchOffsetsForTopics(ctx, group, topic)
	if err != nil && !errors.Is(err, kerr.GroupIDNotFound) { // a group that is not known yet has committed nothing
		return nil, fmt.Errorf("read the offsets of consumer group %s: %w", group, err)
	}
	offsets := make(map[int32]int64, len(responses[topic]))
	for partition, response := range responses[topic] {
		if response.Err != nil {
			return nil, fmt.Errorf("read the offset of consumer group %s on partition %d of %s: %w", group, partition, topic, response.Err)
		}
		if response.At >= 0 {
			offsets[partition] = response.At
		}
	}
	return offsets, nil
}

// offsets asks list for every partition of topic that the metadata know, and fails when one is missing from the answer.
func (a *Admin) offsets(ctx context.Context, topic string, list func(context.Context, ...string) (kadm.ListedOffsets, error)) (map[int32]int64, error) {
	details, err := a.admin.ListTopics(ctx, topic)
	if err != nil {
		return nil, err
	}
	if err := details[topic].Err; err != nil {
		return nil, err
	}
	if len(details[topic].Partitions) == 0 {
		return nil, errors.New("the topic has no partitions")
	}
	listed, err := list(ctx, topic)
	if err != nil {
		return nil, err
	}
	result := make(map[int32]int64, len(details[topic].Partitions))
	for partition := range details[topic].Partitions {
		offset, ok := listed.Lookup(topic, partition)
		switch {
		case !ok:
			return nil, fmt.Errorf("partition %d: no answer", partition)
		case offset.Err != nil:
			return nil, fmt.Errorf("partition %d: %w", partition, offset.Err)
		case offset.Offset < 0:
			return nil, fmt.Errorf("partition %d: no offset", partition)
		}
		result[partition] = offset.Offset
	}
	return result, nil
}

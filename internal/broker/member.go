package broker

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
)

// maxInstanceID is the length that Kafka takes, in bytes.
const maxInstanceID = 249

// CheckInstanceID reports why Kafka would refuse id as the name of a static member of a group (KIP-345); it has the rules of names of topics for
// them.
func CheckInstanceID(id string) error {
	strange := strings.ContainsFunc(id, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '.' && r != '_' && r != '-'
	})
	if id == "" || len(id) > maxInstanceID || strange || id == "." || id == ".." {
		return fmt.Errorf("must be 1 to %d letters, digits, dots, underscores and hyphens, and not . or .. alone", maxInstanceID)
	}
	return nil
}

// errUnsettled is the answer about a group whose members are just sharing out the partitions.
var errUnsettled = errors.New("the group is not settled")

// Unowned returns the partitions of topic that no member of the group has, in their order. It fails while a rebalance is under way, and for a group
// without members.
func (a *Admin) Unowned(ctx context.Context, group, topic string) ([]int32, error) {
	groups, err := a.admin.DescribeGroups(ctx, group)
	described := groups[group]
	if err = errors.Join(err, described.Err); err == nil && described.State != "Stable" {
		err = errUnsettled
	}
	if err != nil {
		return nil, fmt.Errorf("look who is in the Kafka group %s: %w", group, err)
	}
	// Looked up after the group: a partition that was added meanwhile has no owner yet, one that was deleted is asked for no more.
	topics, err := a.admin.ListTopics(ctx, topic)
	if err = errors.Join(err, topics[topic].Err); err != nil && !errors.Is(err, kerr.UnknownTopicOrPartition) {
		return nil, fmt.Errorf("list the partitions of the Kafka topic %s: %w", topic, err)
	}
	owned := described.AssignedPartitions()
	var unowned []int32
	for _, p := range topics[topic].Partitions.Numbers() {
		if !owned.Lookup(topic, p) {
			unowned = append(unowned, p)
		}
	}
	return unowned, nil
}

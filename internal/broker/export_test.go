package broker

import "github.com/twmb/franz-go/pkg/kgo"

// NewWatchedProducer is NewProducer with hooks into the client.
func NewWatchedProducer(cfg ProducerConfig, hooks ...kgo.Hook) (*Producer, error) {
	return newProducer(cfg, kgo.WithHooks(hooks...))
}

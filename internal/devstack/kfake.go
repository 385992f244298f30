package devstack

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
)

// KfakeConfig says how the in-process Kafka keeps its records.
type KfakeConfig struct {
	// Dir keeps topics, records and committed offsets between runs, written through to the
	// disk one by one; it may only be used by one process at a time. Empty: memory only.
	Dir string
	// Brokers is how many brokers it plays. Default 1.
	Brokers int
	// Partitions of a topic that is created without a number. Default 12.
	Partitions int
	// GroupMinSessionTimeout is the shortest session timeout that a consumer group may ask
	// for. Default 1 s.
	GroupMinSessionTimeout time.Duration
	// Logger hears its warnings. Default: nobody.
	Logger *slog.Logger
	// Options come last and win over all of the above.
	Options []kfake.Opt
}

// WithDefaults returns c with its unset fields filled in.
func (c KfakeConfig) WithDefaults() KfakeConfig {
	if c.Brokers == 0 {
		c.Brokers = 1
	}
	if c.Partitions == 0 {
		c.Partitions = 12
	}
	if c.GroupMinSessionTimeout == 0 {
		c.GroupMinSessionTimeout = time.Second
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// Kfake is a Kafka inside this process.
type Kfake struct {
	cfg     KfakeConfig
	dir     *workDir // nil: memory only
	cluster *kfake.Cluster
	brokers []string
}

// StartKfake starts an in-process Kafka.
func StartKfake(cfg KfakeConfig) (*Kfake, error) {
	k := &Kfake{cfg: cfg.WithDefaults()}
	var err error
	if cfg.Dir != "" {
		if k.dir, err = openDir(cfg.Dir, "kafka"); err != nil {
			return nil, fmt.Errorf("start in-process Kafka: %w", err)
		}
	}
	if err := k.open(kfake.NumBrokers(k.cfg.Brokers)); err != nil {
		return nil, errors.Join(err, k.Stop())
	}
	return k, nil
}

// open starts the cluster on the ports that where says.
func (k *Kfake) open(where kfake.Opt) error {
	opts := []kfake.Opt{
		where,
		kfake.DefaultNumPartitions(k.cfg.Partitions),
		kfake.GroupMinSessionTimeout(k.cfg.GroupMinSessionTimeout),
		kfake.WithLogger(kfakeLogger{k.cfg.Logger}),
	}
	if k.dir != nil {
		opts = append(opts, kfake.DataDir(k.dir.file("data")), kfake.SyncWrites())
	}
	cluster, err := kfake.NewCluster(append(opts, k.cfg.Options...)...)
	if err != nil {
		return fmt.Errorf("start in-process Kafka: %w", err)
	}
	k.cluster, k.brokers = cluster, cluster.ListenAddrs()
	return nil
}

// Brokers are the seed addresses for clients. They survive Restart.
func (k *Kfake) Brokers() []string { return k.brokers }

// Cluster is the engine itself, for fault hooks. Restart replaces it.
func (k *Kfake) Cluster() *kfake.Cluster { return k.cluster }

// Restart closes every connection and opens the same ports again; without a Dir all
// topics are gone then. It must not run together with another method of k.
func (k *Kfake) Restart() error {
	ports := make([]int, len(k.brokers))
	for i, addr := range k.brokers {
		_, port, err := net.SplitHostPort(addr)
		if err == nil {
			ports[i], err = strconv.Atoi(port)
		}
		if err != nil {
			return fmt.Errorf("restart in-process Kafka: %w", err)
		}
	}
	k.cluster.Close()
	return k.open(kfake.Ports(ports...))
}

// Stop closes every connection and writes what belongs on disk. It may be called again.
func (k *Kfake) Stop() error {
	if k.cluster != nil {
		k.cluster.Close()
	}
	if k.dir != nil {
		return k.dir.close()
	}
	return nil
}

// kfakeLogger passes warnings and errors on.
type kfakeLogger struct{ to *slog.Logger }

// Logf implements kfake.Logger.
func (l kfakeLogger) Logf(level kfake.LogLevel, format string, args ...any) {
	switch level {
	case kfake.LogLevelError:
		l.to.Error("in-process Kafka: " + fmt.Sprintf(format, args...))
	case kfake.LogLevelWarn:
		l.to.Warn("in-process Kafka: " + fmt.Sprintf(format, args...))
	default:
	}
}

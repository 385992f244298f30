package devstack

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// KafkaConfig says where a private Apache Kafka broker keeps its records and finds its
// programs.
type KafkaConfig struct {
	// Dir is kept. Empty: a temporary one, removed by Stop.
	Dir string
	// Libs is a directory with the jars of Kafka. Default: KAFKA_LIBS of the environment,
	// or else .cache/kafka/libs beside the go.mod above the working directory, which is
	// where deploy/install.sh puts them.
	Libs string
	// Access says who gets in. Default: everybody.
	Access KafkaAccess
}

// WithDefaults returns c with its unset fields filled in.
func (c KafkaConfig) WithDefaults() KafkaConfig {
	if c.Libs == "" {
		c.Libs = os.Getenv("KAFKA_LIBS")
	}
	if c.Libs == "" {
		c.Libs = filepath.Join(moduleRoot(), ".cache", "kafka", "libs")
	}
	return c
}

// moduleRoot is the nearest directory with a go.mod, from the working directory up: go
// test runs every test in the directory of its package.
func moduleRoot() string {
	start, err := os.Getwd()
	if err != nil {
		return "."
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			return start
		}
	}
}

// Kafka is a real Apache Kafka, one broker that is its own controller, started as a
// child process. Stop, Kill, Pause, Resume, Restart and Done act on that process.
type Kafka struct {
	*server
	port int
}

// StartKafka starts a broker with the java on PATH or in JAVA_HOME. A new one takes
// some three seconds.
func StartKafka(ctx context.Context, cfg KafkaConfig) (*Kafka, error) {
	k, err := startKafka(ctx, cfg.WithDefaults())
	if err != nil {
		return nil, fmt.Errorf("start Kafka: %w", err)
	}
	return k, nil
}

func startKafka(ctx context.Context, cfg KafkaConfig) (*Kafka, error) {
	java, err := findJava()
	if err != nil {
		return nil, err
	}
	libs, err := filepath.Abs(cfg.Libs)
	if err != nil {
		return nil, err
	}
	if jars, err := filepath.Glob(filepath.Join(libs, "kafka_*.jar")); err != nil || len(jars) == 0 {
		return nil, fmt.Errorf("no jars of Kafka in %s: deploy/install.sh test fetches them", libs)
	}
	if err := cfg.Access.validate(); err != nil {
		return nil, err
	}
	dir, err := openDir(cfg.Dir, "kafka")
	if err != nil {
		return nil, err
	}
	b := &kafkaBroker{dir: dir, java: java, libs: libs, access: cfg.Access}
	k := &Kafka{}
	err = onFreePorts(2, func(ports []int) error {
		k.port = ports[0]
		if err := b.configure(ctx, ports[0], ports[1]); err != nil {
			return err
		}
		k.server = b.server(ports[0])
		return k.start(ctx)
	})
	if err != nil {
		return nil, errors.Join(err, dir.close())
	}
	if err := cfg.Access.admit(ctx, k.Brokers()[0]); err != nil {
		return nil, errors.Join(err, k.Stop())
	}
	return k, nil
}

func findJava() (string, error) {
	path, err := exec.LookPath("java")
	if err == nil {
		return path, nil
	}
	if home := os.Getenv("JAVA_HOME"); home != "" {
		if path, err := exec.LookPath(filepath.Join(home, "bin", "java")); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("find a Java runtime: %w", err)
}

// Brokers are the seed addresses for clients.
func (k *Kafka) Brokers() []string {
	return []string{net.JoinHostPort("127.0.0.1", strconv.Itoa(k.port))}
}

// kafkaBroker is a broker's directory and what runs it.
type kafkaBroker struct {
	dir  *workDir
	java string
	libs string

	access KafkaAccess
	id     string // of the cluster
}

// command runs a class of Kafka. The heap and compiler settings are for a broker that
// starts fast and stays at 200 MB; the classpath wildcard is expanded by java itself.
func (b *kafkaBroker) command(name, class string, args ...string) command {
	jvm := []string{
		"-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData",
		"-Dlog4j2.configurationFile=" + b.dir.file("log4j2.properties"),
		"-Djava.io.tmpdir=" + b.dir.path, // libraries unpacked by a broker that is killed would stay in /tmp
		"-cp", filepath.Join(b.libs, "*"), class,
	}
	return command{
		name: name, path: b.java, args: append(jvm, args...),
		dir: b.dir.path, log: b.dir.file("kafka.log"),
		stop: syscall.SIGTERM, orphaned: syscall.SIGKILL,
	}
}

// configure writes the broker's configuration and formats its directory once.
func (b *kafkaBroker) configure(ctx context.Context, port, controllerPort int) error {
	const logging = `status=error
appender.out.type=Console
appender.out.name=out
appender.out.layout.type=PatternLayout
appender.out.layout.pattern=%d %p %c{1} %m%n%throwable
rootLogger.level=warn
rootLogger.appenderRef.out.ref=out
`
	if err := os.WriteFile(b.dir.file("log4j2.properties"), []byte(logging), 0o600); err != nil {
		return fmt.Errorf("write configuration: %w", err)
	}
	if err := b.access.equip(b.dir); err != nil {
		return err
	}
	if err := os.WriteFile(b.dir.file("server.properties"), []byte(b.properties(port, controllerPort)), 0o600); err != nil {
		return fmt.Errorf("write configuration: %w", err)
	}
	var err error
	if b.id, err = clusterID(b.dir.file("data")); err != nil || b.id != "" {
		return err
	}
	b.id = newClusterID()
	return run(ctx, b.command("kafka format", "kafka.tools.StorageTool", "format", "-t", b.id, "-c", b.dir.file("server.properties")))
}

func (b *kafkaBroker) properties(port, controllerPort int) string {
	client := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	controller := net.JoinHostPort("127.0.0.1", strconv.Itoa(controllerPort))
	lines := []string{
		"process.roles=broker,controller",
		"node.id=1",
		"controller.quorum.voters=1@" + controller,
		"listeners=CLIENT://" + client + ",CONTROLLER://" + controller,
		"advertised.listeners=CLIENT://" + client,
		"controller.listener.names=CONTROLLER",
		"inter.broker.listener.name=CLIENT",
		"listener.security.protocol.map=CONTROLLER:PLAINTEXT,CLIENT:" + b.access.protocol(),
		"log.dirs=" + b.dir.file("data"),
		"auto.create.topics.enable=false",
		"num.partitions=3",
		// One broker has to do for the internal topics too.
		"offsets.topic.replication.factor=1",
		"offsets.topic.num.partitions=4",
		"transaction.state.log.replication.factor=1",
		"transaction.state.log.min.isr=1",
		"share.coordinator.state.topic.replication.factor=1",
		"share.coordinator.state.topic.min.isr=1",
		// Tests start and lose consumers all the time.
		"group.initial.rebalance.delay.ms=0",
		"group.min.session.timeout.ms=1000",
		// A killed broker may not come back before its last session has run out: 9 s by
		// default, and the restart of a killed one took 12.
		"broker.heartbeat.interval.ms=500",
		"broker.session.timeout.ms=3000",
	}
	return strings.Join(append(lines, b.access.properties(b.dir)...), "\n") + "\n"
}

// clusterID reads the id that a formatted directory belongs to, empty where it is not.
func clusterID(data string) (string, error) {
	text, err := os.ReadFile(filepath.Join(data, "meta.properties"))
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read id of the cluster: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		if id, ok := strings.CutPrefix(strings.TrimSpace(line), "cluster.id="); ok {
			return id, nil
		}
	}
	return "", fmt.Errorf("read id of the cluster: none in %s", data)
}

// newClusterID makes 16 random bytes in URL-safe base64, as Kafka wants them, without a
// leading dash, which its command line would take for an option.
func newClusterID() string {
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails
	id[0] &= 0x7f
	return base64.RawURLEncoding.EncodeToString(id[:])
}

func (b *kafkaBroker) server(port int) *server {
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	return &server{
		dir: b.dir,
		cmd: b.command("kafka", "kafka.Kafka", b.dir.file("server.properties")),
		ready: func(ctx context.Context, _ *server) (bool, error) {
			return b.answers(ctx, addr), nil
		},
	}
}

// answers reports whether a broker of our cluster, and not some stranger, serves addr and
// leads every partition. An open port alone is not enough: a client that meets a
// partition without a leader waits for seconds before it asks again.
func (b *kafkaBroker) answers(ctx context.Context, addr string) bool {
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return false
	}
	_ = conn.Close()
	client, err := kgo.NewClient(append(b.access.options(), kgo.SeedBrokers(addr), kgo.RequestRetries(0))...)
	if err != nil {
		return false
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	meta, err := kadm.NewClient(client).Metadata(ctx)
	if err != nil || meta.Cluster != b.id || len(meta.Brokers) != 1 {
		return false
	}
	led := true
	meta.Topics.EachPartition(func(p kadm.PartitionDetail) { led = led && p.Err == nil && p.Leader >= 0 })
	return led
}

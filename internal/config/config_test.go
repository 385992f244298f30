package config_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"

	"flashgate/internal/config"
	"flashgate/limiter"
)

// grammar has the commands that differ in what they read.
type grammar struct {
	Gateway struct {
		config.Public
		config.Admin
		config.Redis
		config.Kafka
		config.Database
		config.Auth
		config.Proxies
		config.Limits
		config.Timeouts
		config.Shutdown
		config.Browsers
		config.Payments
	} `cmd:""`
	Consumer struct {
		config.Admin
		config.Redis
		config.Kafka
		config.KafkaGroup
		config.KafkaMember
		config.KafkaTopics
		config.Database
		config.Deadlines
		config.Retire
		config.Reconcile
		config.Shutdown
	} `cmd:"" set:"admin_listen=127.0.0.1:9091"`
	Dev struct {
		config.Admin
		config.Auth
		config.Proxies
		config.Payments
	} `kong:"cmd,set='known_secrets=allowed',set='payment_secret=dev-payments-not-for-production',set='jwt_secret=dev-secret-not-for-production-000000',set='admin_token=dev-admin',set='trusted_proxies=127.0.0.0/8,::1'"`
	Token struct {
		config.TokenSigner
	} `cmd:""`
	Show struct {
		config.AdminClient
	} `cmd:""`
	Pay struct {
		config.PaymentSigner
	} `cmd:""`
	Version struct{} `cmd:""`
}

// parse runs the grammar with a command line, such as "gateway --listen=:1", and variables.
func parse(t testing.TB, line string, environ ...string) (*grammar, error) {
	t.Helper()
	var g grammar
	k, err := kong.New(&g, append(config.Options(config.NewEnv(environ)), kong.Name("flashgate"))...)
	if err != nil {
		t.Fatal(err)
	}
	_, err = k.Parse(strings.Fields(line))
	return &g, err
}

const (
	key      = "FLASHGATE_JWT_SECRET=0123456789abcdef0123456789abcdef"
	database = "FLASHGATE_DATABASE_URL=postgres://u:p@127.0.0.1:5432/shop"
)

func TestDefaultsAreThoseOfTheDocumentation(t *testing.T) {
	g, err := parse(t, "gateway", key, database)
	if err != nil {
		t.Fatal(err)
	}
	gw := g.Gateway
	for _, test := range []struct{ name, got, want string }{
		{"listen", gw.Listen, ":8080"},
		{"admin listen", gw.AdminListen, "127.0.0.1:9090"},
		{"admin token", gw.AdminToken.Reveal(), ""},
		{"redis", gw.Redis.URL.Reveal(), "redis://127.0.0.1:6379"},
		{"brokers", strings.Join(gw.Brokers, ","), "127.0.0.1:9092"},
		{"mechanism", gw.SASLMechanism, ""},
		{"leeway", gw.JWTLeeway.String(), "30s"},
		{"header", gw.ClientIPHeader, "X-Forwarded-For"},
		{"rate user", gw.RateUser.String(), "5/s:10"},
		{"rate ip", gw.RateIP.String(), "100/s:200"},
		{"rate read", gw.RateRead.String(), "20/s:40"},
		{"request", gw.Request.String(), "3s"},
		{"publish", gw.PublishTimeout().String(), "1s"},
		{"record deadline", gw.RecordDeadline.String(), "2s"},
		{"give up", gw.GiveUp.String(), "5m0s"},
		{"shutdown", gw.ShutdownTimeout.String(), "15s"},
	} {
		if test.got != test.want {
			t.Errorf("%s: got %q, want %q", test.name, test.got, test.want)
		}
	}
	if gw.TLS || gw.TrustedProxies != nil || gw.OutboxLimit != 200_000 || gw.Redis.Off() || gw.Kafka.Off() {
		t.Errorf("other defaults are %v, %v, %d, %v, %v", gw.TLS, gw.TrustedProxies, gw.OutboxLimit, gw.Redis.Off(), gw.Kafka.Off())
	}

	g, err = parse(t, "consumer", database)
	if err != nil {
		t.Fatal(err)
	}
	if c := g.Consumer; c.AdminListen != "127.0.0.1:9091" || c.Group != "order-writer" || c.Partitions != 12 || c.Replication != 1 {
		t.Errorf("the consumer's defaults are %+v", c)
	}

	g, err = parse(t, "dev")
	if err != nil {
		t.Fatal(err)
	}
	if d := g.Dev; d.JWTSecret != config.DevJWTSecret || d.AdminToken != config.DevAdminToken || len(d.TrustedProxies) != 2 {
		t.Errorf("dev's defaults are %+v", d)
	}
}

func TestThePublishTimeoutFollowsTheRequestTimeout(t *testing.T) {
	for request, want := range map[string]time.Duration{"300ms": 100 * time.Millisecond, "3s": time.Second, "5m": time.Second} {
		g, err := parse(t, "gateway --request-timeout="+request, key, database)
		if err != nil {
			t.Fatal(err)
		}
		if got := g.Gateway.PublishTimeout(); got != want {
			t.Errorf("request timeout %s: publish timeout %v, want %v", request, got, want)
		}
	}
}

func TestFlagsWinOverVariablesAndVariablesOverDefaults(t *testing.T) {
	g, err := parse(t, "gateway --rate-user=7/m:8 --kafka-tls", key, database, "FLASHGATE_RATE_USER=1/s:1", "FLASHGATE_RATE_IP=off", "FLASHGATE_KAFKA_TLS=off",
		"FLASHGATE_REDIS_URL=off", "FLASHGATE_KAFKA_BROKERS= a:1, [::1]:2 ", "FLASHGATE_TRUSTED_PROXIES=10.0.0.0/8, 2001:db8::1")
	if err != nil {
		t.Fatal(err)
	}
	gw := g.Gateway
	if gw.RateUser != (limiter.Rate{Events: 7, Per: time.Minute, Burst: 8}) || !gw.RateIP.IsOff() || !gw.TLS || !gw.Redis.Off() {
		t.Errorf("read %v, %v, %v, %v", gw.RateUser, gw.RateIP, gw.TLS, gw.Redis.Off())
	}
	if !slices.Equal(gw.Brokers, []string{"a:1", "[::1]:2"}) || len(gw.TrustedProxies) != 2 {
		t.Errorf("read the lists %v and %v", gw.Brokers, gw.TrustedProxies)
	}
	if g, err := parse(t, "gateway --kafka-tls=no --kafka-brokers=off", key, database); err != nil || g.Gateway.TLS || !g.Gateway.Kafka.Off() {
		t.Errorf("off was read as %v, %v, error %v", g.Gateway.TLS, g.Gateway.Brokers, err)
	}
}

func TestAnEmptyValueCountsAsUnset(t *testing.T) {
	g, err := parse(t, "gateway", key, database, "FLASHGATE_LISTEN=", "FLASHGATE_GIVE_UP=", "FLASHGATE_NO_SUCH_THING=", "FLASHGATE_RATE_IP_FILE=")
	if err != nil {
		t.Fatal(err)
	}
	if g.Gateway.Listen != ":8080" || g.Gateway.GiveUp != 5*time.Minute {
		t.Errorf("read %q and %v, want the defaults", g.Gateway.Listen, g.Gateway.GiveUp)
	}
	if _, err := parse(t, "gateway", database, "FLASHGATE_JWT_SECRET="); err == nil {
		t.Error("a gateway without a key starts")
	}
}

// noMember is what is wrong with a name that Kafka would refuse.
const noMember = "must be 1 to 249 letters, digits, dots, underscores and hyphens, and not . or .. alone"

func TestRefusals(t *testing.T) {
	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, test := range []struct {
		line    string
		environ string // separated by blanks
		want    string // the whole message
	}{
		// Names.
		{"gateway", "FLASHGATE_LISTN=:1", "FLASHGATE_LISTN: is not a setting of flashgate; did you mean FLASHGATE_LISTEN?"},
		{"gateway", "FLASHGATE_KAFKA_BROKER=a:1", "FLASHGATE_KAFKA_BROKER: is not a setting of flashgate; did you mean FLASHGATE_KAFKA_BROKERS?"},
		{"gateway", "FLASHGATE_REDISURL=off", "FLASHGATE_REDISURL: is not a setting of flashgate; did you mean FLASHGATE_REDIS_URL?"},
		{"gateway", "FLASHGATE_JWT_PUBLIC_KEY=x", "FLASHGATE_JWT_PUBLIC_KEY: is not a setting of flashgate; did you mean FLASHGATE_JWT_PUBLIC_KEY_FILE?"},
		{"gateway", "FLASHGATE_ZEBRA=1", "FLASHGATE_ZEBRA: is not a setting of flashgate"},
		{"gateway", "FLASHGATE_ZEBRA=1 FLASHGATE_YAK=2", "FLASHGATE_YAK: is not a setting of flashgate (and 1 more: FLASHGATE_ZEBRA)"},
		{"gateway", "FLASHGATE_GATEWAY_SERVICE_HOST=10.0.0.1", "FLASHGATE_GATEWAY_SERVICE_HOST: is not a setting of flashgate; it looks like a Kubernetes service link: set enableServiceLinks to false"},
		{"consumer", "FLASHGATE_LISTN=:1", "FLASHGATE_LISTN: is not a setting of flashgate; did you mean FLASHGATE_LISTEN?"},
		{"token", "FLASHGATE_LISTN=:1", "FLASHGATE_LISTN: is not a setting of flashgate; did you mean FLASHGATE_LISTEN?"},

		// Values.
		{"gateway", "FLASHGATE_LISTEN=8080", `FLASHGATE_LISTEN="8080": must be an address to listen on, such as :8080 or 127.0.0.1:9090: missing port in address`},
		{"gateway", "FLASHGATE_LISTEN=:65536", `FLASHGATE_LISTEN=":65536": must be an address to listen on, such as :8080 or 127.0.0.1:9090: the port must be a number from 0 to 65535`},
		{"gateway", "FLASHGATE_LISTEN=:http", `FLASHGATE_LISTEN=":http": must be an address to listen on, such as :8080 or 127.0.0.1:9090: the port must be a number from 0 to 65535`},
		{"gateway", "FLASHGATE_GIVE_UP=5", `FLASHGATE_GIVE_UP="5": must be a duration with unit, such as 500ms, 3s or 5m, from 50ms to 168h`},
		{"gateway", "FLASHGATE_GIVE_UP=-5m", `FLASHGATE_GIVE_UP="-5m": must be a duration with unit, such as 500ms, 3s or 5m, from 50ms to 168h`},
		{"gateway", "FLASHGATE_GIVE_UP=169h", `FLASHGATE_GIVE_UP="169h": must be a duration with unit, such as 500ms, 3s or 5m, from 50ms to 168h`},
		{"gateway --give-up=soon", "", `--give-up="soon": must be a duration with unit, such as 500ms, 3s or 5m, from 50ms to 168h`},
		{"gateway", "FLASHGATE_OUTBOX_LIMIT=0", `FLASHGATE_OUTBOX_LIMIT="0": must be a whole number from 1 to 100000000`},
		{"gateway", "FLASHGATE_OUTBOX_LIMIT=+5", `FLASHGATE_OUTBOX_LIMIT="+5": must be a whole number from 1 to 100000000`},
		{"gateway", "FLASHGATE_OUTBOX_LIMIT=1e3", `FLASHGATE_OUTBOX_LIMIT="1e3": must be a whole number from 1 to 100000000`},
		{"gateway", "FLASHGATE_RATE_IP=100", `FLASHGATE_RATE_IP="100": must be EVENTS/UNIT:BURST, such as 5/s:10, with the unit s, m or h and numbers from 1 to 1000000, or off`},
		{"gateway", "FLASHGATE_RATE_IP=0/s:1", `FLASHGATE_RATE_IP="0/s:1": must be EVENTS/UNIT:BURST, such as 5/s:10, with the unit s, m or h and numbers from 1 to 1000000, or off`},
		{"gateway", "FLASHGATE_KAFKA_BROKERS=a:1,b", `FLASHGATE_KAFKA_BROKERS="a:1,b": must be a comma list of host:port, or off: entry 2: missing port in address`},
		{"gateway", "FLASHGATE_KAFKA_BROKERS=a:1,,b:2", `FLASHGATE_KAFKA_BROKERS="a:1,,b:2": must be a comma list of host:port, or off: entry 2: missing port in address`},
		{"gateway", "FLASHGATE_KAFKA_BROKERS=:9092", `FLASHGATE_KAFKA_BROKERS=":9092": must be a comma list of host:port, or off: entry 1: the host is missing`},
		{"gateway", "FLASHGATE_KAFKA_TLS=maybe", `FLASHGATE_KAFKA_TLS="maybe": must be on or off`},
		{"gateway", "FLASHGATE_KAFKA_SASL_MECHANISM=PLAIN", `FLASHGATE_KAFKA_SASL_MECHANISM="PLAIN": must be one of plain, scram-sha-256, scram-sha-512, or off`},
		{"gateway", "FLASHGATE_CLIENT_IP_HEADER=Forwarded", `FLASHGATE_CLIENT_IP_HEADER="Forwarded": client address header Forwarded is not supported; let the proxy send X-Forwarded-For`},
		{"show", "FLASHGATE_ADMIN_TOKEN=x FLASHGATE_ADMIN_URL=127.0.0.1:9090", `FLASHGATE_ADMIN_URL="127.0.0.1:9090": must be a URL such as http://127.0.0.1:9090, with http or https and without user, query or fragment`},
		{"gateway", "FLASHGATE_JWT_PUBLIC_KEY_FILE=" + dir + "/none", `FLASHGATE_JWT_PUBLIC_KEY_FILE="` + dir + `/none": cannot be read: no such file or directory`},

		// Values that may hold secrets are not repeated.
		{"gateway", "FLASHGATE_JWT_SECRET=hunter2hunter2", "FLASHGATE_JWT_SECRET: must be at least 32 bytes long; it has 14"},
		{"gateway --jwt-secret=hunter2hunter2", "", "--jwt-secret: must be at least 32 bytes long; it has 14"},
		{"gateway", "FLASHGATE_ADMIN_TOKEN=hun\tter2", "FLASHGATE_ADMIN_TOKEN: must be visible ASCII without spaces, as it travels in a header"},
		{"gateway", "FLASHGATE_REDIS_URL=http://:hunter2@host", "FLASHGATE_REDIS_URL: must be a URL such as redis://user:password@host:6379, rediss:// for TLS, or off"},
		{"gateway", "FLASHGATE_REDIS_URL=redis://:hunt/er2@host", "FLASHGATE_REDIS_URL: must be a URL such as redis://user:password@host:6379, rediss:// for TLS, or off; special characters in the password must be percent-encoded"},
		{"gateway", "FLASHGATE_REDIS_URL=redis://:hunt#er2@host", "FLASHGATE_REDIS_URL: must be a URL such as redis://user:password@host:6379, rediss:// for TLS, or off; special characters in the password must be percent-encoded"},
		{"gateway", "FLASHGATE_REDIS_URL=redis://:hunter2@host/x", "FLASHGATE_REDIS_URL: must be a URL such as redis://user:password@host:6379, rediss:// for TLS, or off"},
		{"gateway", "FLASHGATE_REDIS_URL=redis://:hunter2@host?master_sett=m", "FLASHGATE_REDIS_URL: has a parameter that is none of addr, client_cache, client_name, db, dial_timeout, master_set, max_retries, protocol, skip_verify, write_timeout"},

		// Files.
		{"token", "FLASHGATE_JWT_SECRET_FILE=" + dir + "/none", `FLASHGATE_JWT_SECRET_FILE="` + dir + `/none": cannot be read: no such file or directory`},
		{"token", "FLASHGATE_JWT_SECRET_FILE=" + dir, `FLASHGATE_JWT_SECRET_FILE="` + dir + `": cannot be read: is a directory`},
		{"token", "FLASHGATE_JWT_SECRET_FILE=" + file("empty", "\n"), `FLASHGATE_JWT_SECRET_FILE="` + dir + `/empty": the file is empty`},
		{"token", "FLASHGATE_JWT_SECRET_FILE=/dev/zero", `FLASHGATE_JWT_SECRET_FILE="/dev/zero": the file is larger than 1048576 bytes`},
		{"token", "FLASHGATE_JWT_SECRET_FILE=" + file("short", "hunter2\n"), "FLASHGATE_JWT_SECRET: must be at least 32 bytes long; it has 7"},
		{"token", key + " FLASHGATE_JWT_SECRET_FILE=" + file("short", "hunter2\n"), "FLASHGATE_JWT_SECRET: is set, and so is FLASHGATE_JWT_SECRET_FILE; only one of them may be"},

		// What is missing, what everybody knows, what this version cannot do.
		{"gateway", key, "FLASHGATE_DATABASE_URL: is required, such as postgres://user:password@host:5432/database"},
		{"gateway", database, "FLASHGATE_JWT_SECRET: is required, or FLASHGATE_JWT_PUBLIC_KEY_FILE, or FLASHGATE_JWT_JWKS_URL: without a key no token can be verified"},
		{"token", "", "FLASHGATE_JWT_SECRET: is required to sign; flashgate dev uses dev-secret-not-for-production-000000"},
		{"show", "", "FLASHGATE_ADMIN_TOKEN: is required: the admin API answers nobody without it"},
		{"gateway", database + " FLASHGATE_JWT_SECRET=" + config.DevJWTSecret, "FLASHGATE_JWT_SECRET: is the known key of flashgate dev, with which anybody can sign; choose a secret one"},
		{"gateway --admin-token=dev-admin", key + " " + database, "FLASHGATE_ADMIN_TOKEN: is the known token of flashgate dev; choose a secret one"},
		{"consumer", database + " FLASHGATE_ADMIN_TOKEN=dev-admin", "FLASHGATE_ADMIN_TOKEN: is the known token of flashgate dev; choose a secret one"},
		{"pay", "", "FLASHGATE_PAYMENT_SECRET: is required to sign; flashgate dev uses dev-payments-not-for-production"},
		{"gateway", key + " " + database + " FLASHGATE_PAYMENT_SECRET=" + config.DevPaymentSecret, "FLASHGATE_PAYMENT_SECRET: is the known key of flashgate dev, with which anybody can pay; choose a secret one"},
		{"gateway", database + " FLASHGATE_JWT_JWKS_URL=ftp://id.example/keys", `FLASHGATE_JWT_JWKS_URL="ftp://id.example/keys": must be a URL such as https://id.example/.well-known/jwks.json, with http or https and without user or fragment`},
		{"consumer --retire-after=9000h", database, `--retire-after="9000h": must be a duration with unit, such as 500ms, 3s or 5m, from 0s to 8760h`},
		{"gateway", key + " " + database + " FLASHGATE_CORS_ORIGINS=https://shop.example/", `FLASHGATE_CORS_ORIGINS="https://shop.example/": ` + noOrigin(1)},
		{"gateway", key + " " + database + " FLASHGATE_CORS_ORIGINS=https://shop.example,*", `FLASHGATE_CORS_ORIGINS="https://shop.example,*": ` + noOrigin(2)},
		{"gateway", key + " " + database + " FLASHGATE_CORS_ORIGINS=https://Shop.example", `FLASHGATE_CORS_ORIGINS="https://Shop.example": ` + noOrigin(1)},
		{"gateway", key + " " + database + " FLASHGATE_CORS_ORIGINS=https://shop.example:443", `FLASHGATE_CORS_ORIGINS="https://shop.example:443": ` + noOrigin(1)},
		{"gateway", key + " " + database + " FLASHGATE_CORS_ORIGINS=https://*.shop.example", `FLASHGATE_CORS_ORIGINS="https://*.shop.example": ` + noOrigin(1)},
		{"gateway", key + " " + database + " FLASHGATE_CORS_ORIGINS=null", `FLASHGATE_CORS_ORIGINS="null": ` + noOrigin(1)},
		{"gateway", key + " " + database + " FLASHGATE_CORS_ORIGINS=https://u@shop.example", `FLASHGATE_CORS_ORIGINS: ` + noOrigin(1)},

		// Settings that contradict each other.
		{"gateway --publish-timeout=2s", key + " " + database, "FLASHGATE_PUBLISH_TIMEOUT: 2s must be less than FLASHGATE_RECORD_DEADLINE (2s): after its deadline a record is no longer waited for"},
		{"gateway --request-timeout=1s --publish-timeout=1s", key + " " + database, "FLASHGATE_PUBLISH_TIMEOUT: 1s must be less than FLASHGATE_REQUEST_TIMEOUT (1s): it is a part of it"},
		{"gateway --give-up=2s", key + " " + database, "FLASHGATE_RECORD_DEADLINE: 2s must be less than FLASHGATE_GIVE_UP (2s): a record that may still arrive must not be given up"},
		{"gateway --record-deadline=500ms", key + " " + database, "FLASHGATE_PUBLISH_TIMEOUT: 1s must be less than FLASHGATE_RECORD_DEADLINE (500ms): after its deadline a record is no longer waited for"},
		{"consumer --give-up=1s", database, "FLASHGATE_RECORD_DEADLINE: 2s must be less than FLASHGATE_GIVE_UP (1s): a record that may still arrive must not be given up"},
		{"consumer", database + " FLASHGATE_CONSUMER_ID=pod/1", `FLASHGATE_CONSUMER_ID="pod/1": ` + noMember},
		{"consumer", database + " FLASHGATE_CONSUMER_ID=..", `FLASHGATE_CONSUMER_ID="..": ` + noMember},
		{"consumer --consumer-id=", database, "--consumer-id: " + noMember},
		{"consumer", database + " FLASHGATE_KAFKA_SASL_USER=u", "FLASHGATE_KAFKA_SASL_MECHANISM: is off, but a user or a password is set"},
		{"consumer", database + " FLASHGATE_KAFKA_SASL_MECHANISM=plain", "FLASHGATE_KAFKA_SASL_USER: is required with the mechanism plain"},
		{"consumer", database + " FLASHGATE_KAFKA_SASL_MECHANISM=plain FLASHGATE_KAFKA_SASL_USER=u", "FLASHGATE_KAFKA_SASL_PASSWORD: is required with the mechanism plain"},
	} {
		// Split at blanks only: one of the values holds a tab.
		_, err := parse(t, test.line, strings.Split(test.environ, " ")...)
		if err == nil {
			t.Errorf("%s with %s: started, want %q", test.line, test.environ, test.want)
			continue
		}
		if got := config.Message(err); got != test.want {
			t.Errorf("%s with %s:\n got %s\nwant %s", test.line, test.environ, got, test.want)
		}
	}
}

func TestURLsThatMayHoldASecretAreNotRepeated(t *testing.T) {
	const secret = "hunter8"
	for _, text := range []string{
		"https://u:hunter8@id.example/keys", "https://hunter8@id.example", "https://id.example:hunter8/keys", "https://u:hun ter8hunter8@id.example", "u:hunter8@id.example",
		"ftp://id.example/keys?token=hunter8", "https://id.example/keys#hunter8", "id:hunter8", "://hunter8", "https://u:%zzhunter8/keys", "https://u:a\nhunter8@id.example",
	} {
		for _, test := range [][2]string{{"gateway", "FLASHGATE_JWT_JWKS_URL"}, {"show", "FLASHGATE_ADMIN_URL"}, {"gateway", "FLASHGATE_KAFKA_BROKERS"}, {"gateway", "FLASHGATE_CORS_ORIGINS"}} {
			if plain := !strings.Contains(text, "@"); plain && (test[1] == "FLASHGATE_KAFKA_BROKERS" || test[1] == "FLASHGATE_CORS_ORIGINS") {
				continue
			}
			_, err := parse(t, test[0], key, database, "FLASHGATE_ADMIN_TOKEN=t", test[1]+"="+text)
			if err == nil {
				t.Errorf("%s=%s was taken", test[1], text)
			} else if got := config.Message(err); !strings.HasPrefix(got, test[1]+": must be") || strings.Contains(got, secret) {
				t.Errorf("%s=%s: %s", test[1], text, got)
			}
		}
	}
	// What cannot hold one is shown, as it is what one has to look at.
	if _, err := parse(t, "show", "FLASHGATE_ADMIN_TOKEN=t", "FLASHGATE_ADMIN_URL=htp://desk:9090/x"); err == nil || !strings.HasPrefix(config.Message(err), `FLASHGATE_ADMIN_URL="htp://desk:9090/x": must be`) {
		t.Errorf("%v", err)
	}
}

func TestADatabaseURLIsCheckedAndNeverRepeated(t *testing.T) {
	for _, dsn := range []string{
		"postgres://u:hunter2@h:x/db", "postgres://u:hunt/er2@h/db", "postgres://u:hunter2@h/db?pool_max_conns=many",
		"postgres://u:hunter2@h/db?sslmode=perhaps", "host=h password=hunter2 port=x", "mysql://u:hunter2@h/db", "hunter2",
	} {
		_, err := parse(t, "gateway", key, "FLASHGATE_DATABASE_URL="+dsn)
		if err == nil {
			t.Errorf("%s was taken", dsn)
			continue
		}
		if got := config.Message(err); !strings.HasPrefix(got, "FLASHGATE_DATABASE_URL: must be a PostgreSQL connection string") || strings.Contains(got, "er2") {
			t.Errorf("%s: %s", dsn, got)
		}
	}
	for _, dsn := range []string{"postgres://u:p@h/db?pool_max_conns=4", "postgres://u:p#q@h/db", "host=/var/run/postgresql dbname=shop user=u"} {
		if g, err := parse(t, "gateway", key, "FLASHGATE_DATABASE_URL="+dsn); err != nil || g.Gateway.Database.URL.Reveal() != dsn {
			t.Errorf("%s: read %q, error %v", dsn, g.Gateway.Database.URL.Reveal(), err)
		}
	}
}

func TestValuesComeFromFiles(t *testing.T) {
	dir := t.TempDir()
	for content, want := range map[string]string{
		"0123456789abcdef0123456789abcdef":     "0123456789abcdef0123456789abcdef",
		"0123456789abcdef0123456789abcdef\n":   "0123456789abcdef0123456789abcdef",
		"0123456789abcdef0123456789abcdef\r\n": "0123456789abcdef0123456789abcdef",
		"0123456789abcdef0123456789abcde\n\n":  "0123456789abcdef0123456789abcde\n",
		" 123456789abcdef0123456789abcdef\n":   " 123456789abcdef0123456789abcdef",
	} {
		path := filepath.Join(dir, "secret")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		g, err := parse(t, "token", "FLASHGATE_JWT_SECRET_FILE="+path)
		if err != nil {
			t.Errorf("%q: %v", content, err)
		} else if got := g.Token.JWTSecret.Reveal(); got != want {
			t.Errorf("%q: read %q, want %q", content, got, want)
		}
	}
	// FLASHGATE_JWT_PUBLIC_KEY_FILE is a name of its own: its value is the path, which may stand in a file like any other value.
	pem, pointer := filepath.Join(dir, "key.pem"), filepath.Join(dir, "pointer")
	if err := os.WriteFile(pem, []byte("PEM"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(pointer, []byte(pem+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, variable := range []string{"FLASHGATE_JWT_PUBLIC_KEY_FILE=" + pem, "FLASHGATE_JWT_PUBLIC_KEY_FILE_FILE=" + pointer} {
		g, err := parse(t, "gateway", database, variable)
		if err != nil || g.Gateway.JWTPublicKeyFile != pem {
			t.Errorf("%s: read %q, error %v", variable, g.Gateway.JWTPublicKeyFile, err)
		}
	}
}

func TestOnlyWhatConcernsTheCommandStopsIt(t *testing.T) {
	for _, test := range []struct{ line, environ string }{
		{"consumer", "FLASHGATE_LISTEN=nonsense"},
		{"consumer", "FLASHGATE_JWT_SECRET=short"},
		{"consumer", "FLASHGATE_JWT_SECRET_FILE=/no/such/file"},
		{"consumer", "FLASHGATE_JWT_JWKS_URL=https://id.example/keys"},
		{"consumer", "FLASHGATE_PUBLISH_TIMEOUT=10m"},
		{"consumer", "FLASHGATE_SERVICE_HOST=10.0.0.1"},
		{"consumer", "FLASHGATE_PORT=tcp://10.0.0.1:80"},
		{"consumer", "FLASHGATE_PORT_8080_TCP_ADDR=10.0.0.1"},
		{"consumer", "flashgate_listen=1"},
		{"consumer", "OTHER_THING=1"},
		{"version", "FLASHGATE_LISTN=:1"},
		{"token", key},
		{"token", "FLASHGATE_JWT_SECRET=" + config.DevJWTSecret},
		{"show", "FLASHGATE_ADMIN_TOKEN=dev-admin"},
		{"dev", "FLASHGATE_JWT_SECRET=" + config.DevJWTSecret},
	} {
		if _, err := parse(t, test.line, test.environ, database); err != nil {
			t.Errorf("%s with %s: %v", test.line, test.environ, err)
		}
	}
}

// noOrigin is the complaint about an entry of the list of origins.
func noOrigin(entry int) string {
	return fmt.Sprintf("must be a comma list of origins as browsers send them, such as https://shop.example or http://localhost:3000, "+
		"in lower case, without path and without the port that the scheme implies; or * alone: entry %d is none", entry)
}

func TestOriginsAndKeySets(t *testing.T) {
	g, err := parse(t, "gateway", database, "FLASHGATE_JWT_JWKS_URL=https://id.example/keys?tenant=1",
		"FLASHGATE_CORS_ORIGINS=https://shop.example, http://localhost:3000,https://[2001:db8::1]:8443")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"https://shop.example", "http://localhost:3000", "https://[2001:db8::1]:8443"}
	if got := g.Gateway.CORSOrigins; !slices.Equal(got, want) {
		t.Errorf("origins %q, want %q", got, want)
	}
	if g.Gateway.JWKSURL != "https://id.example/keys?tenant=1" {
		t.Errorf("key set at %q", g.Gateway.JWKSURL)
	}
	g, err = parse(t, "gateway", key, database, "FLASHGATE_CORS_ORIGINS=*", "FLASHGATE_PAYMENT_SECRET=hunter2")
	if err != nil || !slices.Equal(g.Gateway.CORSOrigins, []string{"*"}) || g.Gateway.PaymentSecret.Reveal() != "hunter2" {
		t.Errorf("origins %q, %v", g.Gateway.CORSOrigins, err)
	}
	if g, err = parse(t, "consumer", database); err != nil || g.Consumer.RetireAfter != 24*time.Hour {
		t.Errorf("retire after %v, %v", g.Consumer.RetireAfter, err)
	}
	if g.Consumer.ReconcileEvery != time.Minute {
		t.Errorf("reconcile every %v", g.Consumer.ReconcileEvery)
	}
	if g, err = parse(t, "consumer --reconcile-every=off", database); err != nil || g.Consumer.ReconcileEvery != 0 {
		t.Errorf("reconcile every %v, %v", g.Consumer.ReconcileEvery, err)
	}
	if _, err = parse(t, "consumer", database, "FLASHGATE_RECONCILE_EVERY=0s"); err == nil || !strings.Contains(err.Error(), "from 1s to 24h, or off") {
		t.Errorf("reconcile every 0s: %v", err)
	}
	longest := strings.Repeat("x", 249)
	for _, id := range []string{"", "flashgate-consumer-0", "Shop_1.eu", longest} {
		if g, err = parse(t, "consumer", database, "FLASHGATE_CONSUMER_ID="+id); err != nil || g.Consumer.ConsumerID != id {
			t.Errorf("consumer id %q is read as %q, %v", id, g.Consumer.ConsumerID, err)
		}
	}
	if _, err = parse(t, "consumer", database, "FLASHGATE_CONSUMER_ID=x"+longest); err == nil || !strings.Contains(err.Error(), noMember) {
		t.Errorf("a consumer id that is too long: %v", err)
	}
	if _, err = parse(t, "consumer --retire-after=off", database); err == nil {
		t.Error("what has no off was turned off")
	}
}

func TestNames(t *testing.T) {
	want := strings.Fields(`LISTEN ADMIN_LISTEN ADMIN_TOKEN ADMIN_URL REDIS_URL KAFKA_BROKERS KAFKA_TLS KAFKA_SASL_MECHANISM KAFKA_SASL_USER KAFKA_SASL_PASSWORD
		KAFKA_PARTITIONS KAFKA_REPLICATION KAFKA_GROUP CONSUMER_ID DATABASE_URL JWT_SECRET JWT_PUBLIC_KEY_FILE JWT_JWKS_URL JWT_ISSUER JWT_AUDIENCE JWT_LEEWAY
		TRUSTED_PROXIES CLIENT_IP_HEADER RATE_USER RATE_IP RATE_READ REQUEST_TIMEOUT PUBLISH_TIMEOUT RECORD_DEADLINE GIVE_UP OUTBOX_LIMIT RETIRE_AFTER RECONCILE_EVERY
		SHUTDOWN_TIMEOUT CORS_ORIGINS PAYMENT_SECRET URL`)
	for i := range want {
		want[i] = "FLASHGATE_" + want[i]
	}
	slices.Sort(want)
	if got := config.Names(); !slices.Equal(got, want) {
		t.Errorf("the names are\n%v, want\n%v", got, want)
	}
}

func TestHelpGivesUnitDefaultAndVariable(t *testing.T) {
	var g grammar
	var out bytes.Buffer
	options := append(config.Options(config.NewEnv([]string{"FLASHGATE_TYPO=1"})), kong.Name("flashgate"), kong.Writers(&out, &out), kong.Exit(func(int) {}),
		kong.ConfigureHelp(kong.HelpOptions{WrapUpperBound: 400}))
	k, err := kong.New(&g, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("COLUMNS", "400")
	_, _ = k.Parse([]string{"consumer", "--help"}) // the exit, which is switched off here, comes before the error about the variable
	help := strings.Join(strings.Fields(out.String()), " ")
	for _, want := range []string{
		"--give-up=DURATION Age at which a reservation that never reached the broker is cancelled and its unit returned, 50ms to 168h. Default 5m. $FLASHGATE_GIVE_UP",
		"--admin-listen=HOST:PORT Health, metrics and, on gateways, the admin API. Default 127.0.0.1:9091. $FLASHGATE_ADMIN_LISTEN",
		"--admin-token=TOKEN Bearer token of the admin API and of /debug/pprof. Default none: /admin and /debug/pprof refuse. $FLASHGATE_ADMIN_TOKEN",
	} {
		if !strings.Contains(help, want) {
			t.Errorf("the help lacks %q:\n%s", want, out.String())
		}
	}
	if strings.Contains(help, "jwt-secret") {
		t.Error("the consumer's help names a flag of the gateway")
	}
}

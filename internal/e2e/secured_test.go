package e2e

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"flashgate/internal/devstack"
	"flashgate/internal/devstack/devtest"
)

// redisRules are all that flashgate needs of Redis: its own keys and its own channel, and a look at the server.
const redisRules = "~{item:* &flashgate:* +@read +@write +@scripting +@pubsub +@connection -@dangerous +time +info +role +cluster|slots +cluster|shards +config|get"

// vault is a set of servers that let in nobody without a password, and say nothing in plain text.
type vault struct {
	tb       testing.TB
	trusted  string // file with the authority's certificate
	stranger string // and with another authority's
	database *url.URL
	redis    *url.URL
	brokers  string
	password string            // of Kafka
	secrets  map[string]string // what no output may show
}

func newVault(t *testing.T) *vault {
	t.Helper()
	v := &vault{tb: t, password: "kafka-3f9!c", secrets: map[string]string{}}
	var authority *devstack.Authority
	authority, v.trusted = devtest.Authority(t)
	_, v.stranger = devtest.Authority(t)

	const redisPassword, databasePassword = "redis/8d@1#0", "postgres 5b:7?2"
	redis := devtest.GuardedRedis(t, devstack.RedisAccess{Authority: authority, User: "sale", Password: redisPassword, Rules: redisRules})
	v.redis = parseURL(t, redis.URL())
	v.brokers = strings.Join(devtest.GuardedKafka(t, devstack.KafkaAccess{Authority: authority, User: "sale", Password: v.password}).Brokers(), ",")
	v.database = v.makeDatabase(devtest.GuardedPostgres(t, authority), databasePassword)
	v.secrets = map[string]string{
		"Redis": redisPassword, "Redis, escaped": url.QueryEscape(redisPassword), "PostgreSQL": databasePassword,
		"PostgreSQL, escaped": url.PathEscape(databasePassword), "Kafka": v.password, "tokens": jwtSecret, "the admin API": adminToken,
		"nobody": "wr0ng",
	}
	return v
}

func parseURL(t testing.TB, text string) *url.URL {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// makeDatabase makes a role that owns one database and is nothing else, as a careful shop does, and says how it gets in.
func (v *vault) makeDatabase(p *devstack.Postgres, password string) *url.URL {
	v.tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	conn, err := pgx.Connect(ctx, p.DSN("postgres"))
	if err != nil {
		v.tb.Fatal(err)
	}
	defer func() { _ = conn.Close(ctx) }()
	for _, sql := range []string{"CREATE ROLE sale LOGIN PASSWORD '" + password + "'", "CREATE DATABASE sale OWNER sale TEMPLATE template0"} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			v.tb.Fatal(err)
		}
	}
	u := parseURL(v.tb, p.DSN("sale"))
	u.User = url.UserPassword("sale", password)
	return u
}

// with returns a copy of a URL with parameters set, name and value in turn.
func with(u *url.URL, parameters ...string) *url.URL {
	out, q := *u, u.Query()
	for i := 0; i+1 < len(parameters); i += 2 {
		q.Set(parameters[i], parameters[i+1])
	}
	out.RawQuery = q.Encode()
	return &out
}

// as returns a copy of a URL with another password.
func as(u *url.URL, password string) *url.URL {
	out := *u
	out.User = url.UserPassword(u.User.Username(), password)
	return &out
}

// secret puts a value into a file and returns the variable that names it.
func (v *vault) secret(name, value string) string {
	v.tb.Helper()
	path := filepath.Join(v.tb.TempDir(), name)
	if err := os.WriteFile(path, []byte(value+"\n"), 0o600); err != nil {
		v.tb.Fatal(err)
	}
	return name + "_FILE=" + path
}

// env is the environment of a role that gets in: every secret in a file.
func (v *vault) env() []string {
	return []string{
		"SSL_CERT_FILE=" + v.trusted,
		v.secret("FLASHGATE_DATABASE_URL", v.database.String()), v.secret("FLASHGATE_REDIS_URL", v.redis.String()),
		v.secret("FLASHGATE_KAFKA_SASL_PASSWORD", v.password), v.secret("FLASHGATE_JWT_SECRET", jwtSecret), v.secret("FLASHGATE_ADMIN_TOKEN", adminToken),
		v.secret("FLASHGATE_PAYMENT_SECRET", "payments-1c4e-9b07"),
		"FLASHGATE_KAFKA_BROKERS=" + v.brokers, "FLASHGATE_KAFKA_TLS=on", "FLASHGATE_KAFKA_SASL_MECHANISM=scram-sha-512", "FLASHGATE_KAFKA_SASL_USER=sale",
		"FLASHGATE_TRUSTED_PROXIES=127.0.0.0/8", "FLASHGATE_LISTEN=127.0.0.1:0", "FLASHGATE_ADMIN_LISTEN=127.0.0.1:0",
	}
}

// keepsSecrets checks what a process has printed.
func (v *vault) keepsSecrets(what, output string) {
	v.tb.Helper()
	for name, secret := range v.secrets {
		if strings.Contains(output, secret) {
			v.tb.Errorf("%s shows the secret of %s", what, name)
		}
	}
}

// Every server asks for a password and speaks TLS alone, every secret is in a file; a sale goes well, and whoever has a wrong password or trusts
// somebody else is told what to look at.
func TestSaleBehindPasswordsAndTLS(t *testing.T) {
	v := newVault(t)
	t.Run("sale", func(t *testing.T) { v.sale(t) })
	t.Run("wrong", func(t *testing.T) { v.wrong(t) })
}

func (v *vault) sale(t *testing.T) {
	v.tb = t
	s := &shop{tb: t, database: v.database.String(), nextItem: 1000, client: &http.Client{Timeout: 20 * time.Second}}
	t.Cleanup(s.client.CloseIdleConnections)
	v.database = with(v.database, "application_name", "flash-sale", "statement_timeout", "5s", "pool_max_conns", "7", "pool_min_conns", "7")
	s.env = v.env()
	output, code := run(t, s.env, "migrate")
	if code != 0 {
		t.Fatalf("migrate ended with status %d:\n%s", code, output)
	}
	v.keepsSecrets("migrate", output)
	c := s.openCalmly(2)
	v.sessionsAreNamedAndCounted(s)
	s.wholeSale(13)
	output, code = run(t, s.env, "preflight")
	if code != 0 {
		t.Errorf("preflight ended with status %d:\n%s", code, output)
	}
	v.keepsSecrets("preflight", output)
	c.stop()
	v.statementsEnd(s)
	for _, r := range c.processes {
		v.keepsSecrets(r.name, r.output.String())
	}
}

// sessionsAreNamedAndCounted checks that the DSN decides what the owner of the database sees of the roles, and how much of it they take.
func (v *vault) sessionsAreNamedAndCounted(s *shop) {
	s.tb.Helper()
	const sessions = `SELECT count(*) FROM pg_stat_activity JOIN pg_stat_ssl USING (pid) WHERE application_name = 'flash-sale' AND usename = 'sale' AND ssl`
	const processes, each = 3, 7 + 1 // one more listens for changes
	var n int64
	devtest.Eventually(s.tb, 30*time.Second, func() bool { n = s.query(sessions); return n >= processes*each }, "%d processes do not open %d sessions each", processes, each)
	if n > processes*each {
		s.tb.Errorf("%d processes have %d sessions, want %d each", processes, n, each)
	}
}

// statementsEnd checks that the DSN decides when a statement is given up.
func (v *vault) statementsEnd(s *shop) {
	s.tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.database)
	if err != nil {
		s.tb.Fatal(err)
	}
	defer func() { _ = conn.Close(ctx) }()
	if _, err := conn.Exec(ctx, "BEGIN; LOCK TABLE flash_sale_item"); err != nil {
		s.tb.Fatal(err)
	}
	env := append(v.env(), v.secret("FLASHGATE_DATABASE_URL", with(v.database, "statement_timeout", "300").String()))
	output, code := run(s.tb, env, "purge", "--older-than", "24h")
	if code == 0 || !strings.Contains(output, "statement timeout") {
		s.tb.Errorf("a statement that waits: status %d, %s", code, output)
	}
}

// wrong starts a gateway for each thing that may be wrong.
func (v *vault) wrong(t *testing.T) {
	const redis, kafka, postgres = "redis", "kafka", "postgresql" // checks of the readiness
	const untrusted = "certificate signed by unknown authority"
	for _, c := range []struct {
		name string
		env  func(v *vault) []string
		says map[string][]string // by check: the setting to look at, and what is wrong
	}{
		{"password of Redis", func(v *vault) []string {
			return []string{v.secret("FLASHGATE_REDIS_URL", as(v.redis, "wr0ng").String())}
		}, map[string][]string{redis: {"FLASHGATE_REDIS_URL", "WRONGPASS"}}},
		{"password of Kafka", func(v *vault) []string {
			return []string{v.secret("FLASHGATE_KAFKA_SASL_PASSWORD", "wr0ng")}
		}, map[string][]string{kafka: {"FLASHGATE_KAFKA_SASL_", "SASL_AUTHENTICATION_FAILED"}}},
		{"authority of Redis and Kafka", func(v *vault) []string {
			return []string{"SSL_CERT_FILE=" + v.stranger}
		}, map[string][]string{redis: {"FLASHGATE_REDIS_URL", untrusted}, kafka: {"FLASHGATE_KAFKA_TLS", untrusted}}},
		{"authority of PostgreSQL", func(v *vault) []string {
			return []string{v.secret("FLASHGATE_DATABASE_URL", with(v.database, "sslrootcert", v.stranger).String())}
		}, map[string][]string{postgres: {"FLASHGATE_DATABASE_URL", untrusted}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			v := *v
			v.tb = t
			port, err := devstack.FreePort()
			if err != nil {
				t.Fatal(err)
			}
			admin := "127.0.0.1:" + strconv.Itoa(port)
			r := launch(t, append(append(v.env(), c.env(&v)...), "FLASHGATE_ADMIN_LISTEN="+admin), "gateway")
			s := &shop{tb: t, client: &http.Client{Timeout: 20 * time.Second}}
			t.Cleanup(s.client.CloseIdleConnections)
			for check, words := range c.says {
				var a answer
				devtest.Eventually(t, 30*time.Second, func() bool {
					a = s.try(http.MethodGet, "http://"+admin+"/readyz", nil, nil)
					return a.status == http.StatusServiceUnavailable && containsAll(reason(a, check), words)
				}, "its readiness does not say %q: %v", words, &a)
				devtest.Eventually(t, 10*time.Second, func() bool { return lineWith(r.output.String(), words) }, "its log does not say %q:\n%s", words, r.output)
				v.keepsSecrets("the readiness", a.text)
			}
			_ = r.cmd.Process.Signal(syscall.SIGTERM)
			if code := r.wait(30 * time.Second); code != 0 {
				t.Errorf("it ended with status %d", code)
			}
			v.keepsSecrets("the log", r.output.String())
		})
	}
	for _, c := range []struct {
		name     string
		database *url.URL
		says     string
	}{
		{"password of PostgreSQL", as(v.database, "wr0ng"), "password authentication failed"},
		{"file of PostgreSQL", with(v.database, "sslrootcert", "/no/such.pem"), "/no/such.pem"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			v := *v
			v.tb = t
			output, code := run(t, append(v.env(), v.secret("FLASHGATE_DATABASE_URL", c.database.String())), "consumer")
			if code != 2 || !containsAll(output, []string{"FLASHGATE_DATABASE_URL", c.says}) {
				t.Errorf("it ended with status %d:\n%s", code, output)
			}
			v.keepsSecrets("the log", output)
		})
	}
}

// reason is why a check of a readiness answer fails.
func reason(a answer, check string) string {
	missing, _ := a.body["missing"].([]any)
	for _, m := range missing {
		if m, ok := m.(map[string]any); ok && m["check"] == check {
			return fmt.Sprint(m["reason"])
		}
	}
	return ""
}

// lineWith reports whether one line of a text has all the words.
func lineWith(text string, words []string) bool {
	for line := range strings.Lines(text) {
		if containsAll(line, words) {
			return true
		}
	}
	return false
}

func containsAll(text string, words []string) bool {
	return !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(text, word) })
}

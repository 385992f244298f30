package main

import (
	"bytes"
	"net/url"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"flashgate/internal/config"
	"flashgate/internal/devstack/devtest"
	"flashgate/internal/token"
)

func TestMain(m *testing.M) {
	devtest.Main(m,
		// fasthttp keeps a clock for the Date header for the rest of the process, and sweeps its workers for some seconds after a server stopped.
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"),
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*workerPool).Start.func2"))
}

// outcome is what a command line did.
type outcome struct {
	code     int
	out, err string
}

// flashgate runs a command line to its end. settings are variables.
func flashgate(t *testing.T, settings []string, input string, args ...string) outcome {
	t.Helper()
	var out, errs bytes.Buffer
	code := run(t.Context(), args, settings, console{strings.NewReader(input), &out, &errs})
	return outcome{code, out.String(), errs.String()}
}

const testKey = "0123456789abcdef0123456789abcdef"

func TestExitCodesAndMessages(t *testing.T) {
	for _, test := range []struct {
		args     string
		settings string
		code     int
		message  string // on the standard error, without the name of the program
	}{
		{"token --user u", "FLASHGATE_JWT_SECRET=" + testKey, 0, ""},
		{"version", "", 0, ""},
		{"version", "FLASHGATE_TYPO=1", 0, ""},
		{"--help", "FLASHGATE_TYPO=1", 0, ""},
		{"token --help", "FLASHGATE_TYPO=1", 0, ""},
		{"item restock -h", "", 0, ""},
		{"tken", "", 2, `unexpected argument tken, did you mean "token"?; see flashgate --help`},
		{"token", "FLASHGATE_JWT_SECRET=" + testKey, 2, "missing flags: --user=ID; see flashgate token --help"},
		{"token --usr u", "", 2, `unknown flag --usr, did you mean "--user"?; see flashgate token --help`},
		{"token --user u", "", 2, "FLASHGATE_JWT_SECRET: is required to sign; flashgate dev uses dev-secret-not-for-production-000000"},
		{"token --user u --ttl 1", "FLASHGATE_JWT_SECRET=" + testKey, 2, `--ttl="1": must be a duration with unit, such as 500ms, 3s or 5m, from 1s to 8760h`},
		{"token --user u", "FLASHGATE_TYPO=1", 2, "FLASHGATE_TYPO: is not a setting of flashgate"},
		{"token --user " + strings.Repeat("u", 65), "FLASHGATE_JWT_SECRET=" + testKey, 2, `--user="` + strings.Repeat("u", 65) + `": must be 1 to 64 bytes of UTF-8 without control characters`},
		{"migrate", "", 2, "FLASHGATE_DATABASE_URL: is required, such as postgres://user:password@host:5432/database"},
		{"item show 1001", "", 2, "FLASHGATE_ADMIN_TOKEN: is required: the admin API answers nobody without it"},
		{"sale create -f x.json", "", 2, "FLASHGATE_ADMIN_TOKEN: is required: the admin API answers nobody without it"},
		{"sale list", "", 2, "FLASHGATE_ADMIN_TOKEN: is required: the admin API answers nobody without it"},
		{"item show x", "", 2, `<id>: "x": not a decimal integer between 1 and 9007199254740991 without sign or leading zero; see flashgate item show --help`},
		{"item restock 1 0", "", 2, `<units>="0": must be a whole number from 1 to 9007199254740991`},
		{"item restock 1 -5", "FLASHGATE_ADMIN_TOKEN=t", 2, `-5 is no flag, and as a number it must be positive; see flashgate item restock --help`},
		{"item restock 1 5 -k", "FLASHGATE_ADMIN_TOKEN=t", 2, `unknown flag -k, did you mean one of "-h", "-o"?; see flashgate item restock --help`},
		{"item restock 1 5 --idempotency-key=", "FLASHGATE_ADMIN_TOKEN=t", 2, "--idempotency-key is empty, and would protect nothing: name a key, or leave the flag out; see flashgate item restock --help"},
		{"item update 1 --shards x", "FLASHGATE_ADMIN_TOKEN=t", 2, `--shards="x": must be a whole number from 1 to 256`},
		{"item update 1 --shards 257", "FLASHGATE_ADMIN_TOKEN=t", 2, `--shards="257": must be a whole number from 1 to 256`},
		{"item update 1 --quantity 1.5", "FLASHGATE_ADMIN_TOKEN=t", 2, `--quantity="1.5": must be a whole number from 0 to 9007199254740991`},
		{"item update 1 --max-per-user 0", "FLASHGATE_ADMIN_TOKEN=t", 2, `--max-per-user="0": must be a whole number from 1 to 10000`},
		{"dlq replay --offset 17", "FLASHGATE_ADMIN_TOKEN=t", 2, "--offset: the partition is missing: PARTITION:OFFSET, as dlq list names the letter; see flashgate dlq replay --help"},
		{"dlq replay --partition 1", "FLASHGATE_ADMIN_TOKEN=t", 2, "--partition: the --offset of the letter is missing; see flashgate dlq replay --help"},
		{"dlq replay --partition 1 --offset 2:3", "FLASHGATE_ADMIN_TOKEN=t", 2, "--partition and --offset name different partitions; see flashgate dlq replay --help"},
		{"dlq replay --offset 1:x", "FLASHGATE_ADMIN_TOKEN=t", 2, `--offset: "1:x": must be PARTITION:OFFSET as dlq list names a letter, such as 3:17, or the offset alone beside --partition; see flashgate dlq replay --help`},
		{"item show 1 -o xml", "FLASHGATE_ADMIN_TOKEN=t", 2, `--output must be one of "table","json" but got "xml"; see flashgate item show --help`},
		{"sale create -f /no/such/file", "FLASHGATE_ADMIN_TOKEN=t", 1, "read the sale: open /no/such/file: no such file or directory"},
		{"sale create -f -", "FLASHGATE_ADMIN_TOKEN=t", 1, "read the sale: - is empty"},
		{"sale update 7", "FLASHGATE_ADMIN_TOKEN=t", 2, "nothing to change; see flashgate sale update --help"},
		{"item update 7", "FLASHGATE_ADMIN_TOKEN=t", 2, "nothing to change; see flashgate item update --help"},
		{"item show 1", "FLASHGATE_ADMIN_TOKEN=t FLASHGATE_ADMIN_URL=http://127.0.0.1:1", 1, "call the admin API at http://127.0.0.1:1: dial tcp 127.0.0.1:1: connect: connection refused"},
	} {
		got := flashgate(t, strings.Fields(test.settings), "", strings.Fields(test.args)...)
		want := ""
		if test.message != "" {
			want = "flashgate: " + test.message + "\n"
		}
		if got.code != test.code || got.err != want {
			t.Errorf("flashgate %s with %q: exit %d, %q; want %d, %q", test.args, test.settings, got.code, got.err, test.code, want)
		}
		if (got.code == 0) != (got.out != "") {
			t.Errorf("flashgate %s: exit %d with the output %q", test.args, got.code, got.out)
		}
	}
}

func TestHelpListsTheSettings(t *testing.T) {
	got := flashgate(t, nil, "", "migrate", "--help")
	text := strings.Join(strings.Fields(got.out), " ")
	for _, want := range []string{"$FLASHGATE_DATABASE_URL", "Default none: required", "$FLASHGATE_KAFKA_PARTITIONS", "Default 12", "1 to 10000"} {
		if !strings.Contains(text, want) {
			t.Errorf("the help of migrate lacks %q:\n%s", want, got.out)
		}
	}
}

func TestAnErrorIsOneLine(t *testing.T) {
	var errs bytes.Buffer
	complain(console{err: &errs}, "first\nsecond\x1b[31m\r third\n")
	if got := errs.String(); got != "flashgate: first second [31m third\n" {
		t.Errorf("wrote %q", got)
	}
}

// TestAnErrorOfADatabaseIsOneLine has the shapes in which PostgreSQL's client reports.
func TestAnErrorOfADatabaseIsOneLine(t *testing.T) {
	for text, want := range map[string]string{
		"failed to connect to `user=u database=d`:\n\t127.0.0.1:5 (127.0.0.1): dial error\n\t[::1]:5 (localhost): dial error": "failed to connect to `user=u database=d`: 127.0.0.1:5 (127.0.0.1): dial error; [::1]:5 (localhost): dial error",
		"as it is":         "as it is",
		"\n a\r\n\r\nb \n": "a; b",
	} {
		if got := oneLine(text); got != want {
			t.Errorf("%q is %q, want %q", text, got, want)
		}
	}
	if got := shown("a\tb\nc\x1b[31md"); got != "a b c\uFFFD[31md" {
		t.Errorf("shown as %q", got)
	}
	got := flashgate(t, []string{
		"FLASHGATE_DATABASE_URL=postgres://nouser:xx@127.0.0.1:1/db", "FLASHGATE_REDIS_URL=redis://127.0.0.1:1", "FLASHGATE_KAFKA_BROKERS=127.0.0.1:1", "FLASHGATE_JWT_SECRET=" + testKey,
	}, "", "preflight", "--timeout", "500ms")
	if got.code != 1 || !strings.Contains(got.out, "127.0.0.1:1") || strings.ContainsAny(got.out, "\uFFFD\t") {
		t.Errorf("exit %d\n%s%s", got.code, got.out, got.err)
	}
}

func TestTokenIsWhatAGatewayTakes(t *testing.T) {
	keys, err := token.NewKeys(token.KeyConfig{Secret: []byte(testKey)})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	verifier, err := token.NewVerifier(token.Config{Keys: keys, Issuer: "shop", Audience: "flash", Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	settings := []string{"FLASHGATE_JWT_SECRET=" + testKey, "FLASHGATE_JWT_ISSUER=shop", "FLASHGATE_JWT_AUDIENCE=flash"}
	got := flashgate(t, settings, "", "token", "--user", "söb ✓", "--ttl", "2h")
	raw := strings.TrimSuffix(got.out, "\n")
	if got.code != 0 || strings.ContainsAny(raw, " \n") {
		t.Fatalf("exit %d, %q, %q", got.code, got.out, got.err)
	}
	now = time.Now() // not before it was issued
	claims, err := verifier.Verify([]byte(raw))
	if err != nil || claims.Subject != "söb ✓" {
		t.Errorf("verified as %+v, %v", claims, err)
	}
	now = now.Add(119 * time.Minute)
	if _, err := verifier.Verify([]byte(raw)); err != nil {
		t.Errorf("after 119 minutes: %v", err)
	}
	now = now.Add(10 * time.Minute)
	if _, err := verifier.Verify([]byte(raw)); err == nil {
		t.Error("a token for two hours is good after 129 minutes")
	}
}

func TestVersion(t *testing.T) {
	got := flashgate(t, nil, "", "version")
	for _, want := range []string{"flashgate ", "\ncommit    ", "\ngo        " + runtime.Version(), "\nschema    "} {
		if !strings.Contains(got.out, want) {
			t.Errorf("version lacks %q: %q", want, got.out)
		}
	}
	for _, test := range []struct {
		version, commit string
		info            debug.BuildInfo
		want            [2]string
	}{
		{"", "", debug.BuildInfo{}, [2]string{"(devel)", "unknown"}},
		{
			"", "", debug.BuildInfo{Main: debug.Module{Version: "v1.0.0"}, Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: "abc"}, {Key: "vcs.modified", Value: "false"}}},
			[2]string{"v1.0.0", "abc"},
		},
		{
			"", "", debug.BuildInfo{Settings: []debug.BuildSetting{{Key: "vcs.modified", Value: "true"}, {Key: "vcs.revision", Value: "abc"}}},
			[2]string{"(devel)", "abc (modified)"},
		},
		{"v2.0.0", "def", debug.BuildInfo{Main: debug.Module{Version: "v1.0.0"}, Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: "abc"}}}, [2]string{"v2.0.0", "def"}},
	} {
		version, commit = test.version, test.commit
		if name, revision := identify(&test.info); name != test.want[0] || revision != test.want[1] {
			t.Errorf("%+v: %q, %q, want %q", test, name, revision, test.want)
		}
	}
	version, commit = "", ""
}

// TestEveryVariableOfACommandIsKnown keeps commands from having variables that the documentation does not name.
func TestEveryVariableOfACommandIsKnown(t *testing.T) {
	known := make(map[string]bool)
	for _, name := range config.Names() {
		known[name] = true
	}
	for _, name := range variables(t) {
		if !known[name] {
			t.Errorf("%s is a variable of a command, and not among those of package config", name)
		}
	}
}

// variables returns the variables that the help of all commands names.
func variables(t *testing.T) []string {
	t.Helper()
	var names []string
	for _, command := range strings.Fields(flashgate(t, nil, "", "--help").out) {
		if strings.ToLower(command) != command || strings.ContainsAny(command, "-<>.,:") {
			continue
		}
		for _, word := range strings.Fields(flashgate(t, nil, "", command, "--help").out) {
			if name, ok := strings.CutPrefix(word, "$"); ok {
				names = append(names, name)
			}
		}
	}
	if len(names) == 0 {
		t.Fatal("the help names no variables")
	}
	return names
}

func TestMigrate(t *testing.T) {
	brokers := devtest.Kfake(t).Brokers()
	settings := []string{"FLASHGATE_DATABASE_URL=" + devtest.Database(t), "FLASHGATE_KAFKA_BROKERS=" + strings.Join(brokers, ","), "FLASHGATE_KAFKA_PARTITIONS=3"}
	for _, state := range []string{"created", "exists"} {
		got := flashgate(t, settings, "", "migrate")
		for _, want := range []string{"database: schema version ", "topic flash-sale-orders: " + state + ", 3 partitions\n", "topic flash-sale-orders.dlq: " + state} {
			if got.code != 0 || !strings.Contains(got.out, want) {
				t.Errorf("exit %d, %q, %q; want %q", got.code, got.out, got.err, want)
			}
		}
	}
	got := flashgate(t, append(settings, "FLASHGATE_KAFKA_PARTITIONS_FILE="+filepath.Join(t.TempDir(), "none")), "", "migrate", "--kafka-partitions=5")
	if got.code != 0 || !strings.Contains(got.err, "topic flash-sale-orders has fewer than 5 partitions") {
		t.Errorf("exit %d, %q, %q", got.code, got.out, got.err)
	}
	if got := flashgate(t, settings, "", "migrate", "--kafka-brokers=off"); got.code != 0 || !strings.Contains(got.out, "kafka: off") {
		t.Errorf("without Kafka: exit %d, %q, %q", got.code, got.out, got.err)
	}
	if got := flashgate(t, nil, "", "migrate", "--database-url=postgres://127.0.0.1:1/none?sslmode=disable&connect_timeout=2"); got.code != 1 || strings.Count(got.err, "\n") != 1 {
		t.Errorf("without a database: exit %d, %q", got.code, got.err)
	}
	// A role of every server that may create nothing.
	database := parseURL(t, devtest.Database(t))
	q := database.Query()
	q.Set("role", "pg_monitor")
	database.RawQuery = q.Encode()
	if got := flashgate(t, []string{"FLASHGATE_DATABASE_URL=" + database.String()}, "", "migrate", "--kafka-brokers=off"); got.code != 1 ||
		!strings.HasPrefix(got.err, "flashgate: FLASHGATE_DATABASE_URL: its user lacks a right: ") || strings.Count(got.err, "\n") != 1 {
		t.Errorf("with a user who may not: exit %d, %q", got.code, got.err)
	}
}

func parseURL(t *testing.T, text string) *url.URL {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

package config_test

import (
	"strings"
	"testing"

	"flashgate/internal/config"
)

// FuzzValues gives every variable of the gateway any text: nothing panics, a message is one line that names the variable, and a value that may
// be a secret is not in it.
func FuzzValues(f *testing.F) {
	for i, seed := range []string{
		"", "off", "on", ":8080", "[::1]:1", "a:1,b:2", "5/s:10", "3s", "-1", "10.0.0.0/8,::1", "redis://:hunter2@h/0?addr=x:1", "postgres://u:hunter2@h/db",
		"postgres://u:hun/ter2@h:x", "host=h password='hunter2", "\x00", "\n", strings.Repeat("9", 400), "é", "%zz",
	} {
		for _, j := range []int{0, 7, 13, 21} { // some variables each, all of them among the seeds
			f.Add(i+j, seed)
		}
	}
	hidden := map[string]bool{
		"FLASHGATE_JWT_SECRET": true, "FLASHGATE_ADMIN_TOKEN": true, "FLASHGATE_REDIS_URL": true, "FLASHGATE_DATABASE_URL": true,
		"FLASHGATE_PAYMENT_SECRET": true, "FLASHGATE_KAFKA_SASL_PASSWORD": true,
	}
	f.Fuzz(func(t *testing.T, i int, value string) {
		names := config.Names()
		name := names[uint(i)%uint(len(names))]
		if name == "FLASHGATE_JWT_PUBLIC_KEY_FILE" {
			return // it would open whatever the fuzzer thinks of
		}
		for _, command := range []string{"gateway", "consumer"} {
			_, err := parse(t, command, name+"="+value)
			if err == nil {
				continue // never without the database URL and the key; see below
			}
			message := config.Message(err)
			if strings.ContainsAny(message, "\n\r\x00") {
				t.Errorf("the message is not one line: %q", message)
			}
			// "Secret" must be long enough not to be part of the message by chance.
			if hidden[name] && len(value) > 24 && strings.Contains(message, value) {
				t.Errorf("the message %q shows the value %q", message, value)
			}
		}
	})
}

// FuzzEnviron reads any environment: nothing panics, and what is not flashgate's never stops it.
func FuzzEnviron(f *testing.F) {
	for _, seed := range []string{"A=B", "FLASHGATE_", "FLASHGATE_=", "FLASHGATE_LISTEN", "=x", "", "FLASHGATE_X\x00=1", "FLASHGATE_PORT=1", "FLASHGATE__FILE=x"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, entry string) {
		err := config.NewEnv([]string{entry}).CheckNames(config.Names())
		if err != nil && !strings.HasPrefix(entry, config.Prefix) {
			t.Errorf("%q stops the start: %v", entry, err)
		}
	})
}

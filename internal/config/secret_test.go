package config_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"flashgate/internal/config"
)

func TestASecretIsNeverPrinted(t *testing.T) {
	secret := config.Secret("hunter2")
	holder := struct{ Token config.Secret }{secret}
	var log bytes.Buffer
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "token", secret, "holder", holder)
	encoded, err := json.Marshal(holder)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{
		fmt.Sprint(secret), fmt.Sprintf("%s %q %v %x", secret, secret, secret, secret), fmt.Sprintf("%+v", holder), fmt.Sprintf("%#v", holder),
		log.String(), string(encoded),
	} {
		if strings.Contains(text, "hunter2") || strings.Contains(text, "68756e74657232") {
			t.Errorf("printed %s", text)
		}
	}
	if secret.Reveal() != "hunter2" || !secret.IsSet() {
		t.Error("the secret itself is lost")
	}
	if empty := config.Secret(""); empty.IsSet() || empty.String() != "" {
		t.Error("an empty secret looks like one")
	}
}

package e2e

import (
	"context"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestADayInTheShop runs the script of the README as a newcomer would, against `flashgate dev`.
func TestADayInTheShop(t *testing.T) {
	script := readmeScript(t, "### A day in the shop")
	dev := start(t, []string{"FLASHGATE_LISTEN=127.0.0.1:0", "FLASHGATE_ADMIN_LISTEN=127.0.0.1:0"}, "dev")
	(&shop{tb: t, client: &http.Client{Timeout: 20 * time.Second}}).awaitReady(dev)
	// The ports are others here. Nothing else of the script is changed.
	script = strings.ReplaceAll(script, "http://127.0.0.1:8080", dev.public)
	script = "set -euo pipefail\n" + script
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	shell := exec.CommandContext(ctx, "bash", "-c", script)
	shell.Dir = t.TempDir()
	shell.Env = []string{"PATH=" + filepath.Dir(binary) + ":" + os.Getenv("PATH"), "HOME=" + os.TempDir(), "FLASHGATE_ADMIN_URL=" + dev.admin, "FLASHGATE_URL=" + dev.public}
	output, err := shell.CombinedOutput()
	if err != nil {
		t.Fatalf("the script ended with %v:\n%s", err, output)
	}
	rest := string(output)
	for _, want := range []string{
		`"error":"SALE_PAUSED"`, `"status":"PENDING"`,
		`"status":"PENDING","refundDue":false`, `"status":"PAID","refundDue":false`, `"status":"PAID","refundDue":false`, `"status":"PAID","refundDue":true`,
		`"status":"PENDING"`, `"status":"CANCELLED"`,
		`"status":"PENDING"`, `"status":"EXPIRED","refundDue":true`,
		`"status":"PENDING"`, `"status":"PENDING"`, `"error":"SOLD_OUT"`, `has 13 units`, `"status":"PENDING"`, `has 13 units`, "2099-06-01T00:00:00Z",
		"refund_due", "EXPIRED", "PAID", "refunded   ", "PAID", "order.refunded", "item.restock", "quantity: 3 → 13", "sale.update", "paused: true → false", "sale.create",
		`"error":"SALE_ENDED"`,
	} {
		at := strings.Index(rest, want)
		if at < 0 {
			t.Fatalf("%q does not come after what came before; all of it:\n%s", want, output)
		}
		rest = rest[at+len(want):]
	}
}

// readmeScript returns the first block of commands behind a heading of the README.
func readmeScript(t *testing.T, heading string) string {
	t.Helper()
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, behind, found := strings.Cut(string(readme), heading+"\n")
	block := regexp.MustCompile("(?s)```sh\n(.*?)```").FindStringSubmatch(behind)
	if !found || block == nil {
		t.Fatalf("the README has no commands under %q", heading)
	}
	return block[1]
}

package ledger

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"flashgate/internal/sale"
)

func TestZZ(t *testing.T) {
	var params []string
	if p := os.Getenv("P"); p != "" {
		params = strings.Split(p, ",")
	}
	l := newLab(t, params...)
	item := l.item(sale.MaxQuantity)
	if os.Getenv("EX") != "" {
		l.DB = l.open(append(params, "session_preload_libraries=auto_explain", "auto_explain.log_min_duration="+os.Getenv("EX"), "auto_explain.log_analyze=on", "client_min_messages=log")...)
	}
	n := 0
	size := 1000
	if s := os.Getenv("S"); s != "" {
		size, _ = strconv.Atoi(s)
	}
	rounds := 20000 / size
	for r := range rounds {
		events := make([]sale.Event, size)
		for i := range events {
			events[i] = reserved(item, strconv.Itoa(n))
			n++
		}
		at := time.Now()
		l.write(events...)
		if r%max(1, rounds/10) == 0 {
			fmt.Println(r, time.Since(at))
		}
	}
}

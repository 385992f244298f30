package ledger

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"
)

// zoneVariable makes the test binary print the sale of a database instead of running tests.
const zoneVariable = "LEDGER_TEST_PRINT_SALE"

func printSaleInZone(dsn string) int {
	db, err := Open(context.Background(), Config{URL: dsn})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	defer db.Close()
	sales, err := db.Sales(context.Background(), 0, 10)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	for _, s := range sales {
		it := &s.Items[0]
		fmt.Println(s.StartsAt, s.EndsAt, it.StatusAt(it.StartsAt.Add(-time.Millisecond)), it.StatusAt(it.StartsAt), it.StatusAt(it.EndsAt))
	}
	return 0
}

// A process reads the same instant back wherever it runs, also around the hours that do not exist or exist twice there.
func TestTheZoneOfTheProcessDoesNotMatter(t *testing.T) {
	l := newLab(t)
	want := ""
	for _, c := range []struct{ start, end, want string }{
		{"2026-11-27T20:00:00+08:00", "2026-11-27T22:00:00+08:00", "2026-11-27 12:00:00 +0000 UTC 2026-11-27 14:00:00 +0000 UTC"},
		{"2026-11-01T01:30:00-05:00", "2026-11-01T01:30:00-06:00", "2026-11-01 06:30:00 +0000 UTC 2026-11-01 07:30:00 +0000 UTC"},
		{"2027-03-14T08:30:00Z", "2027-03-14T08:30:00.001Z", "2027-03-14 08:30:00 +0000 UTC 2027-03-14 08:30:00.001 +0000 UTC"},
	} {
		s := aSale(1)
		var err1, err2 error
		s.StartsAt, err1 = time.Parse(time.RFC3339, c.start)
		s.EndsAt, err2 = time.Parse(time.RFC3339, c.end)
		if err1 != nil || err2 != nil {
			t.Fatal(err1, err2)
		}
		l.create(s)
		want += c.want + " UPCOMING ON_SALE ENDED\n"
	}
	for _, tz := range []string{"UTC", "America/Chicago"} {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), "TZ="+tz, zoneVariable+"="+withParams(t, l.dsn, "timezone=America/New_York"))
		out, err := cmd.CombinedOutput()
		if err != nil || string(out) != want {
			t.Errorf("TZ=%s: read\n%s, want\n%s, %v", tz, out, want, err)
		}
	}
}

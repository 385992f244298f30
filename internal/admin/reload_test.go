package admin_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"flashgate/internal/admin"
)

func TestReload(t *testing.T) {
	w := newWorld()
	w.put(1, 10)
	w.told()
	w.desk.reload = func(context.Context, int64) error {
		it, _ := w.item(1001)
		it.Epoch++
		return nil
	}
	got := do(w.api(t), "POST", "/admin/items/1001/reload", "")
	if got.status != 200 || !strings.HasPrefix(got.body, `{"id":1001,"saleId":1,`+ofItem+`"quantity":10,"sold":0,"available":10,"pending":0,"inTransfer":0,"drift":0,"epoch":2,`) {
		t.Errorf("%d %s", got.status, got.body)
	}
	if steps := w.told(); !slices.Equal(steps, []string{"item", "begin reload 1001", "end reload 1001", "item", "read", "standing"}) {
		t.Errorf("the steps were %v", steps)
	}
}

// TestAReloadGoesOnBehindItsAnswer has a load that takes longer than anybody waits, and is asked for again meanwhile.
func TestAReloadGoesOnBehindItsAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.put(1, 10)
		w.put(2, 10)
		w.desk.reload = func(ctx context.Context, item int64) error {
			select {
			case <-time.After(8 * time.Second):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		api := w.api(t)
		ctx, leave := context.WithCancel(t.Context())
		defer leave()
		started := time.Now()
		time.AfterFunc(time.Second, leave) // whoever asked goes away
		const pending = `{"id":1001,"pending":true,"message":"the item is being loaded, or will be when brokers and order writers keep up; look at it later"}` + "\n"
		if got := doContext(ctx, api, "POST", "/admin/items/1001/reload", ""); got.status != 202 || got.body != pending || time.Since(started) != 5*time.Second {
			t.Errorf("after %v: %d %s", time.Since(started), got.status, got.body)
		}
		if got := do(api, "POST", "/admin/items/1001/reload", "{}"); got.status != 200 || time.Since(started) != 8*time.Second || w.reloads.Load() != 1 {
			t.Errorf("after %v and %d loads: %d %s", time.Since(started), w.reloads.Load(), got.status, got.body)
		}
		// The next one is another load, and that of another item, too.
		for _, id := range []string{"1001", "1002"} {
			if got := do(api, "POST", "/admin/items/"+id+"/reload", ""); got.status != 202 {
				t.Errorf("item %s: %d %s", id, got.status, got.body)
			}
		}
		if w.reloads.Load() != 3 {
			t.Errorf("there were %d loads", w.reloads.Load())
		}
		// A stop ends what is under way, and is over when it has ended.
		if err := api.Close(t.Context()); err != nil {
			t.Error(err)
		}
		refused(t, "closed", do(api, "POST", "/admin/items/1001/reload", ""), 503, "UNAVAILABLE", "the item was not loaded")
		if w.reloads.Load() != 3 {
			t.Error("a load began after the stop")
		}
	})
}

func TestAReloadHasAnEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.put(1, 10)
		ended := make(chan error, 1)
		w.desk.reload = func(ctx context.Context, _ int64) error {
			<-ctx.Done()
			ended <- context.Cause(ctx)
			return ctx.Err()
		}
		started := time.Now()
		api := w.api(t)
		if got := do(api, "POST", "/admin/items/1001/reload", ""); got.status != 202 {
			t.Errorf("%d %s", got.status, got.body)
		}
		if err := <-ended; !errors.Is(err, context.DeadlineExceeded) || time.Since(started) != 5*time.Minute {
			t.Errorf("after %v: %v", time.Since(started), err)
		}
		// One that does not listen is not waited for without end.
		w.desk.reload = func(context.Context, int64) error { time.Sleep(time.Hour); return nil }
		do(api, "POST", "/admin/items/1001/reload", "")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := api.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Close: %v", err)
		}
		if err := api.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestReloadRefuses(t *testing.T) {
	w := newWorld()
	w.put(1, 10)
	w.put(2, 10).RetiredAt = time.Now()
	api := w.api(t)
	post := func(item, body string) answer { return do(api, "POST", "/admin/items/"+item+"/reload", body) }
	refused(t, "no id", post("x", ""), 400, "BAD_REQUEST", "id: not a decimal integer")
	refused(t, "a body", post("1001", `{"force":true}`), 400, "BAD_REQUEST", "force: is not known here")
	refused(t, "a parameter", do(api, "POST", "/admin/items/1001/reload?force=1", ""), 400, "BAD_REQUEST", `"force": is not a parameter of this path`)
	refused(t, "no item", post("7", ""), 404, "NOT_FOUND", "item 7 does not exist")
	refused(t, "retired", post("1002", ""), 409, "RETIRED", "item 1002 is retired")
	if w.reloads.Load() != 0 {
		t.Error("something was loaded")
	}
	w.redisDown = true
	refused(t, "Redis away", post("1001", ""), 503, "UNAVAILABLE", "the item was not loaded")
	w.databaseDown = true
	refused(t, "database away", post("1001", ""), 503, "UNAVAILABLE", "the database does not answer or refused; nothing was changed")
}

// TestNothingIsLoadedWithoutItsAuditRow.
func TestNothingIsLoadedWithoutItsAuditRow(t *testing.T) {
	w := newWorld()
	w.put(1, 10)
	api := w.apiWith(t, func(c *admin.Config) { c.Audit = illegible{w} })
	refused(t, "no row", do(api, "POST", "/admin/items/1001/reload", ""), 503, "UNAVAILABLE", "the item was not loaded")
	if w.reloads.Load() != 0 {
		t.Error("something was loaded")
	}
}

// illegible is an audit table that takes no rows.
type illegible struct{ *world }

func (illegible) BeginReload(context.Context, int64) (uuid.UUID, error) { return uuid.UUID{}, errAway }

// TestAPanicEndsOneLoad, and neither the process nor what is asked for next.
func TestAPanicEndsOneLoad(t *testing.T) {
	w := newWorld()
	w.put(1, 10)
	var log bytes.Buffer
	api := w.apiWith(t, func(c *admin.Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	w.desk.reload = func(context.Context, int64) error { panic("no such shard") }
	refused(t, "a panic", do(api, "POST", "/admin/items/1001/reload", ""), 503, "UNAVAILABLE", "the item was not loaded")
	w.desk.reload = nil
	if got := do(api, "POST", "/admin/items/1001/reload", ""); got.status != 200 {
		t.Errorf("the next load: %d %s", got.status, got.body)
	}
	if text := log.String(); !strings.Contains(text, "caught a panic") || !strings.Contains(text, "panic=string ") || strings.Contains(text, "no such shard") || !strings.Contains(text, "reload_test.go") {
		t.Errorf("the log is\n%s", text)
	}
}

// TestAReloadIsAnsweredAlsoWhenNothingCanBeReadBehindIt shows what was known before it.
func TestAReloadIsAnsweredAlsoWhenNothingCanBeReadBehindIt(t *testing.T) {
	w := newWorld()
	w.put(1, 10)
	w.desk.reload = func(context.Context, int64) error { w.databaseDown = true; return nil }
	api := w.apiWith(t, func(c *admin.Config) { c.ReloadWait = time.Minute })
	if got := do(api, "POST", "/admin/items/1001/reload", ""); got.status != 200 || !strings.Contains(got.body, `"available":null`) {
		t.Errorf("%d %s", got.status, got.body)
	}
}

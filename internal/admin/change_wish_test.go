package admin_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"flashgate/internal/admin"
)

func TestAChangeThatTakesALoad(t *testing.T) {
	for body, quantity := range map[string]string{
		`{"shards":7}`:   `<nil>`,
		`{"quantity":9}`: `9`,
		`{"shards":7,"quantity":9,"paused":true}`: `9`,
		`{"shards":7,"price":"1.5"}`:              `<nil>`,
	} {
		w := newWorld()
		w.put(1, 50)
		w.told()
		var asked string
		w.desk.carryOut = func(_ context.Context, item, wish int64, quantity *int64) (admin.WishOutcome, error) {
			asked = fmt.Sprint(item, wish, " <nil>")
			if quantity != nil {
				asked = fmt.Sprint(item, wish, " ", *quantity)
			}
			it, _ := w.item(item)
			it.Epoch = 42
			return admin.WishDone, nil
		}
		got := do(w.api(t), "PATCH", "/admin/items/1001", body)
		if got.status != 200 || !strings.Contains(got.body, `"epoch":42,`) {
			t.Errorf("%s: %d %s", body, got.status, got.body)
		}
		if want := "1001 7 " + quantity; asked != want {
			t.Errorf("%s: asked for %s, want %s", body, asked, want)
		}
		if steps := w.told(); !slices.Equal(steps, []string{"update item", "refresh", "carry out", "refresh", "item", "read", "standing"}) {
			t.Errorf("%s: the steps were %v", body, steps)
		}
	}
}

func TestAChangeThatALoadRefuses(t *testing.T) {
	w := newWorld()
	w.put(1, 50)
	w.desk.carryOut = func(_ context.Context, item, _ int64, _ *int64) (admin.WishOutcome, error) {
		it, _ := w.item(item)
		it.Sold = 45
		return admin.WishBelowSold, nil
	}
	refused(t, "outsold", do(w.api(t), "PATCH", "/admin/items/1001", `{"quantity":40}`), 409, "BELOW_SOLD",
		"quantity: 45 units were sold when it was to be changed, so it stays at 50; ")
	w.desk.carryOut = func(context.Context, int64, int64, *int64) (admin.WishOutcome, error) { return admin.WishRetired, nil }
	refused(t, "retired", do(w.api(t), "PATCH", "/admin/items/1001", `{"quantity":46}`), 409, "RETIRED", "item 1001 is retired")
}

// TestAChangeGoesOnBehindItsAnswer has a load that takes longer than anybody waits, one that comes to no end, and a stop in the middle of one.
func TestAChangeGoesOnBehindItsAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.put(1, 50)
		ended := make(chan error, 1)
		w.desk.carryOut = func(ctx context.Context, _, _ int64, _ *int64) (admin.WishOutcome, error) {
			<-ctx.Done()
			ended <- context.Cause(ctx)
			return 0, ctx.Err()
		}
		api := w.api(t)
		ctx, leave := context.WithCancel(t.Context())
		defer leave()
		time.AfterFunc(time.Second, leave) // whoever asked goes away
		started := time.Now()
		const pending = `{"id":1001,"pending":true,"message":"the change is stored and will be carried out; look at the item later"}` + "\n"
		if got := doContext(ctx, api, "PATCH", "/admin/items/1001", `{"shards":4}`); got.status != 202 || got.body != pending || time.Since(started) != 5*time.Second {
			t.Errorf("after %v: %d %s", time.Since(started), got.status, got.body)
		}
		if err := <-ended; !errors.Is(err, context.DeadlineExceeded) || time.Since(started) != 5*time.Minute {
			t.Errorf("after %v: %v", time.Since(started), err)
		}
		// What cannot be done now is stored all the same.
		w.desk.carryOut = func(context.Context, int64, int64, *int64) (admin.WishOutcome, error) { return 0, errAway }
		if got := do(api, "PATCH", "/admin/items/1001", `{"quantity":40}`); got.status != 202 || got.body != pending {
			t.Errorf("%d %s", got.status, got.body)
		}
		w.desk.carryOut = func(context.Context, int64, int64, *int64) (admin.WishOutcome, error) { panic("at the load") }
		if got := do(api, "PATCH", "/admin/items/1001", `{"quantity":40}`); got.status != 202 {
			t.Errorf("%d %s", got.status, got.body)
		}
		if err := api.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if got := do(api, "PATCH", "/admin/items/1001", `{"quantity":40}`); got.status != 202 || got.body != pending {
			t.Errorf("while the process stops: %d %s", got.status, got.body)
		}
	})
}

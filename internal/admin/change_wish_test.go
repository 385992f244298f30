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
	for body, fewer := range map[string]int64{
		`{"shards":7}`:   0,
		`{"quantity":9}`: 41,
		`{"shards":7,"quantity":9,"paused":true}`: 41,
		`{"shards":7,"price":"1.5"}`:              0,
		`{"shards":7,"quantity":60}`:              0, // more units are there at once
	} {
		w := newWorld()
		w.put(1, 50)
		w.told()
		var asked string
		w.desk.wishEnd = func(item int64, wish admin.Wish) (admin.WishEnd, error) {
			asked = fmt.Sprint(item, wish)
			it, _ := w.item(item)
			it.Epoch = 42
			return admin.WishEnd{Outcome: admin.WishDone}, nil
		}
		got := do(w.api(t), "PATCH", "/admin/items/1001", body)
		if got.status != 200 || !strings.Contains(got.body, `"epoch":42,`) {
			t.Errorf("%s: %d %s", body, got.status, got.body)
		}
		if want := fmt.Sprint(1001, admin.Wish{Number: 7, Fewer: fewer}); asked != want {
			t.Errorf("%s: asked for %s, want %s", body, asked, want)
		}
		if steps := w.told(); !slices.Equal(steps[:min(8, len(steps))], []string{"update item", "refresh", "carry out", "wish end", "refresh", "item", "read", "standing"}) {
			t.Errorf("%s: the steps were %v", body, steps)
		}
	}
}

// The numbers of a refusal are those of the load that refused: by now less may be sold.
func TestAChangeThatALoadRefuses(t *testing.T) {
	exactly := func(what string, got answer, message string) {
		t.Helper()
		if want := `"message":"` + message + `"`; got.status != 409 || !strings.Contains(got.body, `"error":"BELOW_SOLD"`) || !strings.Contains(got.body, want) {
			t.Errorf("%s: %d %s, want %s", what, got.status, got.body, want)
		}
	}
	w := newWorld()
	w.put(1, 50)
	var end admin.WishEnd
	w.desk.wishEnd = func(int64, admin.Wish) (admin.WishEnd, error) { return end, nil }
	end = admin.WishEnd{Outcome: admin.WishBelowSold, Sold: 45, Quantity: 52}
	exactly("outsold", do(w.api(t), "PATCH", "/admin/items/1001", `{"quantity":40}`),
		"quantity: 45 units were sold when it was to be changed, so it stays at 52")
	exactly("outsold, and more was asked for", do(w.api(t), "PATCH", "/admin/items/1001", `{"quantity":40,"paused":true}`),
		"quantity: 45 units were sold when it was to be changed, so it stays at 52; what else was asked for was changed")
	end.Outcome = admin.WishReplaced
	exactly("replaced", do(w.api(t), "PATCH", "/admin/items/1001", `{"quantity":46}`),
		"quantity: a later change had taken the place of this one, and as 45 units were sold by then that was refused, so it stays at 52")
	exactly("replaced, and more was asked for", do(w.api(t), "PATCH", "/admin/items/1001", `{"quantity":46,"price":"1"}`),
		"quantity: a later change had taken the place of this one, and as 45 units were sold by then that was refused, so it stays at 52; what else was asked for was changed")
	end.Outcome = admin.WishRetired
	refused(t, "retired", do(w.api(t), "PATCH", "/admin/items/1001", `{"quantity":46}`), 409, "RETIRED", "item 1001 is retired")
}

// TestOneTriesForEverybodyWhoWishes has a script that asks for a change again and again, while a server that the load needs is away.
func TestOneTriesForEverybodyWhoWishes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.put(1, 50)
		w.put(2, 50)
		back := make(chan struct{})
		w.desk.carryOut = func(ctx context.Context, _ int64) error {
			select {
			case <-back:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		api := w.api(t)
		for i := range 20 {
			body := fmt.Sprintf(`{"quantity":%d}`, 20+i)
			if got := do(api, "PATCH", "/admin/items/1001", body); got.status != 202 {
				t.Fatalf("%d %s", got.status, got.body)
			}
		}
		if n := w.carried.Load(); n != 1 {
			t.Errorf("%d try to carry out the wishes about one item", n)
		}
		if got := do(api, "PATCH", "/admin/items/1002", `{"shards":7}`); got.status != 202 || w.carried.Load() != 2 {
			t.Errorf("%d %s, and %d try", got.status, got.body, w.carried.Load())
		}
		// A load that somebody asks for is another matter.
		if got := do(api, "POST", "/admin/items/1001/reload", ""); got.status != 200 || w.reloads.Load() != 1 {
			t.Errorf("%d %s, and %d loads", got.status, got.body, w.reloads.Load())
		}
		time.AfterFunc(time.Second, func() { close(back) })
		if got := do(api, "PATCH", "/admin/items/1001", `{"quantity":45}`); got.status != 200 || !strings.Contains(got.body, `"quantity":45,`) || w.carried.Load() != 2 {
			t.Errorf("%d %s, and %d tried", got.status, got.body, w.carried.Load())
		}
	})
}

// TestAWishThatCameTooLateForTheRunner joins one that has seen everything there was before it, and ends.
func TestAWishThatCameTooLateForTheRunner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.put(1, 50)
		w.desk.wishEnd = func(int64, admin.Wish) (admin.WishEnd, error) {
			if w.carried.Load() == 1 {
				return admin.WishEnd{}, nil
			}
			return admin.WishEnd{Outcome: admin.WishDone}, nil
		}
		if got := do(w.api(t), "PATCH", "/admin/items/1001", `{"shards":7}`); got.status != 200 || w.carried.Load() != 2 {
			t.Errorf("%d %s after %d runners", got.status, got.body, w.carried.Load())
		}
	})
}

// TestAChangeGoesOnBehindItsAnswer has a load that takes longer than anybody waits, one that comes to no end, and a stop in the middle of one.
func TestAChangeGoesOnBehindItsAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.put(1, 50)
		ended := make(chan error, 1)
		w.desk.carryOut = func(ctx context.Context, _ int64) error {
			<-ctx.Done()
			ended <- context.Cause(ctx)
			return ctx.Err()
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
		w.desk.carryOut = func(context.Context, int64) error { return errAway }
		if got := do(api, "PATCH", "/admin/items/1001", `{"quantity":40}`); got.status != 202 || got.body != pending {
			t.Errorf("%d %s", got.status, got.body)
		}
		w.desk.carryOut = func(context.Context, int64) error { panic("at the load") }
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

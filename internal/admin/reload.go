package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"

	"flashgate/internal/ops"
)

// reloads are the loads that people have asked for. They go on when nobody waits for them any more: a load that is given up half-way leaves
// the stock unknown until the keeper has begun another. Asked for twice, an item is loaded once; and however many ask for changes that take a
// load, while a server that it needs is away, one goroutine tries for all of them.
type reloads struct {
	ctx  context.Context // of every load
	stop context.CancelFunc

	mu      sync.Mutex
	closed  bool
	running map[task]*reloading
	wg      sync.WaitGroup
}

// task is what there is one of at a time.
type task struct {
	item   int64
	wishes bool // what is wished of the stock is carried out; else the item is loaded, whatever its stock looks like
}

type reloading struct {
	done chan struct{} // closed when it has ended
	err  error         // valid then
}

// endsBefore waits for its end, and reports whether it has come before that of ctx.
func (r *reloading) endsBefore(ctx context.Context) bool {
	select {
	case <-r.done:
		return true
	case <-ctx.Done():
		return false
	}
}

func newReloads() *reloads {
	ctx, stop := context.WithCancel(context.Background())
	return &reloads{ctx: ctx, stop: stop, running: make(map[task]*reloading)}
}

var errClosed = errors.New("the process is stopping")

// join begins a task, or joins the one that is under way. load returns by the end of its context, and does not panic.
func (l *reloads) join(t task, load func(context.Context) error) *reloading {
	l.mu.Lock()
	defer l.mu.Unlock()
	if running, ok := l.running[t]; ok {
		return running
	}
	begun := &reloading{done: make(chan struct{})}
	if l.closed {
		begun.err = errClosed
		close(begun.done)
		return begun
	}
	l.running[t] = begun
	l.wg.Go(func() {
		begun.err = load(l.ctx)
		l.mu.Lock()
		delete(l.running, t)
		l.mu.Unlock()
		close(begun.done)
	})
	return begun
}

// Close ends the loads that are under way; the keepers begin them anew. It returns when they have ended, or ctx has. Requests may go on; those for
// loads are refused.
func (a *API) Close(ctx context.Context) error {
	l := a.reloads
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.stop()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		l.wg.Wait()
	}()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("close admin API: loads are under way: %w", ctx.Err())
	}
}

// reload loads the stock of an item anew from the database. While it does the item cannot be bought.
func (a *API) reload(w http.ResponseWriter, r *http.Request) error {
	id, err := pathID(r)
	if err != nil {
		return err
	}
	if err := noBody(w, r); err != nil {
		return err
	}
	it, ok, err := a.cfg.Ledger.Item(r.Context(), id)
	switch {
	case err != nil:
		return fmt.Errorf("reload item %d: %w", id, err)
	case !ok:
		return noItem(id)
	case !it.RetiredAt.IsZero():
		return retiredItem(id)
	}
	if pending, err := a.awaitLoad(w, id, a.cfg.Reloader.Reload); pending || err != nil {
		return err
	}
	ops.WriteJSON(w, http.StatusOK, a.viewAfter(r.Context(), it, readingWait))
	return nil
}

// awaitLoad begins a load that somebody asked for, or joins the one that is under way, and waits for it. Where that takes too long it answers that the
// load goes on, and returns true.
func (a *API) awaitLoad(w http.ResponseWriter, id int64, load func(context.Context, int64) error) (pending bool, err error) {
	patience, cancel := a.patience()
	defer cancel()
	begun := a.reloads.join(task{item: id}, func(ctx context.Context) error {
		return a.guard("reload item", func() error { return a.load(ctx, id, load) })
	})
	if !begun.endsBefore(patience) {
		ops.WriteJSON(w, http.StatusAccepted, PendingView{ID: id, Pending: true, Message: "the item is being loaded, or will be when brokers and order writers keep up; look at it later"})
		return true, nil
	}
	if begun.err != nil {
		return false, &failure{
			status: http.StatusServiceUnavailable, code: ops.CodeUnavailable,
			message: "the item was not loaded, because a server that this needs does not answer; if its stock is unknown now, a keeper will load it",
		}
	}
	return false, nil
}

// patience is how long a request waits for a load, also when whoever asked has gone away: what he asked for is logged.
func (a *API) patience() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), a.cfg.ReloadWait)
}

// load loads an item, with its row in the audit table. The row comes first: a load that fails, or that the end of the process cuts off, has stopped the
// sale of the item all the same. It gets the item as it is afterwards when that is known.
func (a *API) load(ctx context.Context, id int64, load func(context.Context, int64) error) error {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.ReloadTimeout)
	defer cancel()
	row, err := a.cfg.Audit.BeginReload(ctx, id)
	if err == nil {
		err = load(ctx, id)
	}
	if err != nil {
		a.cfg.Logger.Warn("item not reloaded", "item", id, "error", err)
		return err
	}
	a.cfg.Logger.Info("item reloaded", "item", id)
	if err := a.cfg.Audit.EndReload(ctx, id, row); err != nil {
		a.cfg.Logger.Warn("the audit row of a reload does not say how it ended", "item", id, "error", err)
	}
	return nil
}

// PendingView is the answer for what goes on after it.
type PendingView struct {
	ID      int64  `json:"id"`
	Pending bool   `json:"pending"` // true
	Message string `json:"message"`
}

// ReloadView is the answer to a reload, or to a change of an item: the item, or that it goes on. One of them is nil.
type ReloadView struct {
	Item    *ItemView
	Pending *PendingView
}

// UnmarshalJSON tells the two answers apart.
func (v *ReloadView) UnmarshalJSON(data []byte) error { return eitherView(data, &v.Item, &v.Pending) }

// eitherView reads an answer with the numbers of an item, or one that says that a load goes on. They are told apart by pending, which is a number of
// units in an item.
func eitherView[T any](data []byte, whole **T, pending **PendingView) error {
	var peek struct {
		Pending any `json:"pending"`
	}
	if err := json.Unmarshal(data, &peek); err != nil {
		return err
	}
	if _, still := peek.Pending.(bool); still {
		*pending = new(PendingView)
		return json.Unmarshal(data, *pending)
	}
	*whole = new(T)
	return json.Unmarshal(data, *whole)
}

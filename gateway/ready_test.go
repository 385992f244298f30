package gateway

import (
	"context"
	"testing"
	"testing/synctest"
)

// A poll of /readyz may wait for an answer. Nothing else does, and it ends with the gateway.
func TestAPollThatWaitsHoldsNobodyUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		asked := make(chan struct{})
		w.ready = func(ctx context.Context) bool {
			close(asked)
			<-ctx.Done()
			return true
		}
		g := w.start(t)
		answered := make(chan int)
		go func() { answered <- do(t, g, ask{method: "GET", path: "/readyz"}).status }()
		<-asked
		do(t, g, ask{method: "GET", path: "/livez"}).want(t, 200, "")
		do(t, g, ask{method: "POST", path: itemsPath + "/1001/purchase", token: w.token(t, "1")}).want(t, 202, "")
		g.draining.Store(true)
		g.stop()
		if status := <-answered; status != 503 {
			t.Errorf("a gateway that is draining answers %d", status)
		}
	})
}

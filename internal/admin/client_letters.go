package admin

import (
	"context"
	"net/http"
)

// DeadLetters asks for a page of dead letters, oldest first.
func (c *Client) DeadLetters(ctx context.Context, limit int, cursor string) (Answer[LettersView], error) {
	return call[LettersView](ctx, c, http.MethodGet, "/admin/dlq"+pageOf(limit, cursor).encode(), nil, "")
}

// ReplayDeadLetters has a part of the dead letters put back where they came from. The answer says which, and where the next call goes on.
func (c *Client) ReplayDeadLetters(ctx context.Context, in ReplayInput) (Answer[ReplayView], error) {
	return send[ReplayView](ctx, c, http.MethodPost, "/admin/dlq/replay", in)
}

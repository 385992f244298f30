package admin

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"flashgate/internal/ops"
	"flashgate/internal/sale"
)

// AuditView is one page of changes, newest first.
type AuditView struct {
	Entries    []AuditEntryView `json:"entries"`
	NextCursor *string          `json:"nextCursor"` // null: that was the last page
}

// AuditEntryView is one change. Before and after are the rows of the database, with names as the rest of the API has them; null for none.
type AuditEntryView struct {
	ID      int64           `json:"id"`
	At      Time            `json:"at"`
	What    string          `json:"what"`
	Subject string          `json:"subject"`
	Before  json.RawMessage `json:"before"`
	After   json.RawMessage `json:"after"`
}

// listAudit answers a page of the audit table. A cursor is the last id of the page before.
func (a *API) listAudit(w http.ResponseWriter, r *http.Request) error {
	limit, cursor, err := page(r)
	if err != nil {
		return err
	}
	filter := AuditFilter{Limit: limit + 1} // one more than asked for tells whether there is another page
	if filter.Before, err = idCursor(cursor); err != nil {
		return err
	}
	if text, given := parameter(r, "subject"); given {
		var ok bool
		if filter.Subject, ok = subject(text); !ok {
			return badRequest("subject: must be sale:ID, item:ID or order:ID")
		}
	}
	entries, err := a.cfg.Audit.Audit(r.Context(), filter)
	if err != nil {
		return fmt.Errorf("list audit table: %w", err)
	}
	view := AuditView{Entries: make([]AuditEntryView, 0, len(entries))}
	if len(entries) > limit {
		entries = entries[:limit]
		view.NextCursor = nextCursor(strconv.FormatInt(entries[limit-1].ID, 10))
	}
	for _, e := range entries {
		view.Entries = append(view.Entries, AuditEntryView{
			ID: e.ID, At: Time{e.At}, What: e.What, Subject: e.Subject, Before: camelCased(e.Before), After: camelCased(e.After),
		})
	}
	ops.WriteJSON(w, http.StatusOK, view)
	return nil
}

// camelCased renames the members of a row of the database, ends_at to endsAt, and leaves their values as they are. What is no row stays.
func camelCased(row []byte) json.RawMessage {
	var members map[string]json.RawMessage
	if json.Unmarshal(row, &members) != nil || members == nil {
		return row
	}
	renamed := make(map[string]json.RawMessage, len(members))
	for column, value := range members {
		words := strings.Split(column, "_")
		for i, word := range words[1:] {
			if word != "" {
				words[i+1] = strings.ToUpper(word[:1]) + word[1:]
			}
		}
		renamed[strings.Join(words, "")] = value
	}
	text, err := json.Marshal(renamed)
	if err != nil {
		return row
	}
	return text
}

// subject returns the name of a subject as the table has it: another spelling of an order's id is the same order.
func subject(text string) (string, bool) {
	kind, id, _ := strings.Cut(text, ":")
	switch kind {
	case "sale", "item":
		_, err := sale.ParseID(id)
		return text, err == nil
	case "order":
		order, err := sale.ParseOrderID(id)
		return kind + ":" + order.String(), err == nil
	}
	return "", false
}

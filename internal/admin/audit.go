package admin

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"flashgate/internal/ops"
	"flashgate/internal/sale"
)

// AuditView is one page of changes, newest first.
type AuditView struct {
	Entries    []AuditEntryView `json:"entries"`
	NextCursor *string          `json:"nextCursor"` // null: that was the last page
}

// AuditEntryView is one change. Before and after are the rows of the database, with names as the rest of the API has them, also in
// what they hold; null for none.
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
			return badRequest("subject: must be sale:ID, item:ID, order:ID or dlq")
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

// camelCased renames the members of a row of the database, and of what is in it, all the way down: ends_at becomes endsAt. What is in no object stays as
// it is, and so does what is no JSON.
func camelCased(row json.RawMessage) json.RawMessage {
	renamed, err := json.Marshal(renamedIn(row))
	if err != nil {
		return row
	}
	return renamed
}

func renamedIn(value json.RawMessage) any {
	var members map[string]json.RawMessage
	if json.Unmarshal(value, &members) == nil && members != nil {
		renamed := make(map[string]any, len(members))
		for column, member := range members {
			renamed[camelCase(column)] = valueOf(column, member)
		}
		return renamed
	}
	var elements []json.RawMessage
	if json.Unmarshal(value, &elements) == nil && elements != nil {
		renamed := make([]any, len(elements))
		for i, element := range elements {
			renamed[i] = renamedIn(element)
		}
		return renamed
	}
	return value
}

// valueOf is the value of a column as the rest of the API has it, too: times in UTC with milliseconds, prices as text with all their digits.
func valueOf(column string, value json.RawMessage) any {
	switch {
	case strings.HasSuffix(column, "_at") || strings.HasSuffix(column, "_until") || column == "olderThan":
		var at time.Time
		if json.Unmarshal(value, &at) == nil && !at.IsZero() {
			return Time{at}
		}
	case column == "price":
		var price json.Number
		if json.Unmarshal(value, &price) == nil && price != "" {
			return price.String()
		}
	}
	return renamedIn(value)
}

func camelCase(column string) string {
	words := strings.Split(column, "_")
	for i, word := range words[1:] {
		if word != "" {
			words[i+1] = strings.ToUpper(word[:1]) + word[1:]
		}
	}
	return strings.Join(words, "")
}

// subject returns the name of a subject as the table has it: another spelling of an order's id is the same order.
func subject(text string) (string, bool) {
	kind, id, _ := strings.Cut(text, ":")
	switch kind {
	case "dlq":
		return text, text == kind
	case "sale", "item":
		_, err := sale.ParseID(id)
		return text, err == nil
	case "order":
		order, err := sale.ParseOrderID(id)
		return kind + ":" + order.String(), err == nil
	}
	return "", false
}

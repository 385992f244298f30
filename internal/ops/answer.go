package ops

import (
	"encoding/json"
	"net/http"
)

// Codes of errors that any listener for operators answers with.
const (
	CodeBadRequest       = "BAD_REQUEST"
	CodeUnauthorized     = "UNAUTHORIZED"
	CodeNotFound         = "NOT_FOUND"
	CodeMethodNotAllowed = "METHOD_NOT_ALLOWED"
	CodeTooLarge         = "TOO_LARGE"
	CodeUnavailable      = "UNAVAILABLE"
)

// ErrorBody is the shape of every error.
type ErrorBody struct {
	Code    string `json:"error"`
	Message string `json:"message"`
}

// WriteError answers with an error. Headers that belong to it are set before.
func WriteError(w http.ResponseWriter, status int, code, message string) {
	WriteJSON(w, status, ErrorBody{Code: code, Message: message})
}

// WriteJSON answers with a value that encoding/json can encode. Nothing that operators see may be kept by a cache in between.
func WriteJSON(w http.ResponseWriter, status int, value any) {
	body, err := json.Marshal(value)
	if err != nil {
		panic("ops: answer with what JSON cannot say: " + err.Error()) // a mistake in the program; the server ends the connection
	}
	header := w.Header()
	header.Set("Content-Type", "application/json")
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n')) // a client that is gone needs no answer
}

// Package apidoc holds the HTTP interfaces against docs/openapi.yaml. It tells what an exchange of a request and an answer has that the document does not
// allow, remembers which of the documented answers have been seen, and makes requests out of the document: such that fit it and such that do not.
//
// It is for tests. Its own look at the document alone; those of package e2e send the requests to running servers.
package apidoc

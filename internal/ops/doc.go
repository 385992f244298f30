// Package ops is what every role shows to operators on its admin listener: whether it lives and is ready, its metrics, its profiles, and on
// gateways the admin API, which comes as a handler.
//
// # Reading guide
//
//	server.go      the listener: limits, start, stop
//	routes.go      what is served, and who may ask
//	path.go        which paths are looked at, at all
//	readiness.go   named checks and their answer
//	token.go       the bearer token
//	answer.go      JSON answers, one shape of errors
package ops

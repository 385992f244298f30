package main

import (
	"fmt"
	"time"

	"flashgate/internal/config"
	"flashgate/internal/sale"
	"flashgate/internal/token"
)

// tokenCommand signs a token as an identity provider would.
type tokenCommand struct {
	User string        `name:"user" required:"" placeholder:"ID" help:"User for whom the token is, its sub; 1 to 64 bytes"`
	TTL  time.Duration `name:"ttl" default:"1h" min:"1s" max:"8760h" type:"duration" help:"Time until the token expires"`
	config.TokenSigner
}

// Run implements the command. It prints the token and nothing else.
func (c *tokenCommand) Run(std *console) error {
	if err := sale.CheckUser(c.User); err != nil {
		return &config.Error{Name: "--user", Value: c.User, Problem: err.Error()}
	}
	signer, err := token.NewSigner(token.SignerConfig{Secret: []byte(c.JWTSecret.Reveal()), Issuer: c.JWTIssuer, Audience: c.JWTAudience})
	if err != nil {
		return err
	}
	bearer, err := signer.Sign(c.User, c.TTL, time.Now())
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(std.out, bearer)
	return err
}

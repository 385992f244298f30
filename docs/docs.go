// Package docs holds what is written for those who use flashgate, as far as tests need it: every word of it that can be checked is.
package docs

import _ "embed" // the files below

// OpenAPI describes the HTTP interfaces.
//
//go:embed openapi.yaml
var OpenAPI []byte

// Storefront is the module for pages of the shop.
//
//go:embed storefront.js
var Storefront []byte

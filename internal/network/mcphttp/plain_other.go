//go:build !linux

package mcphttp

import (
	"net/http"
	"net/url"
)

// swift has nothing here to look into a waiting connection with, and so keeps to Go's own client.
func swift(_ *url.URL, t *http.Transport) http.RoundTripper { return t }

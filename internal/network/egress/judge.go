package egress

// Judge reads a URL and says why a request to it does not go out, as the proxy and the server inside TLS judge it.
func (p *Policy) Judge(method, rawURL string) *Refusal {
	t, why := ParseURL(rawURL)
	if why != nil {
		return why
	}
	return p.request(method, t)
}

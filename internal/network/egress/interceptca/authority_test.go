package interceptca

import (
	"bytes"
	"crypto/rand"
	"crypto/x509"
	"testing"
)

// TestVouches: a sandbox that trusts the authority accepts it only for its own hosts, for any certificate that the
// authority signs.
func TestVouches(t *testing.T) {
	a, err := New([]string{"api.example.com"})
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(a.PEM()) {
		t.Fatal("the certificate cannot be read")
	}
	c, err := a.Certificate("api.example.com")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Leaf.Verify(x509.VerifyOptions{DNSName: "api.example.com", Roots: pool}); err != nil {
		t.Errorf("control: %v", err)
	}
	again, err := a.Certificate("api.example.com")
	if err != nil || !bytes.Equal(again.Certificate[0], c.Certificate[0]) {
		t.Errorf("a second certificate was made: %v", err)
	}
	for _, host := range []string{"evil.example", "example.com", "xapi.example.com", ""} {
		if _, err := a.Certificate(host); err == nil {
			t.Errorf("a certificate for %q", host)
		}
	}
	// A certificate by a thief of the key is refused too.
	evil, err := template("")
	if err != nil {
		t.Fatal(err)
	}
	evil.DNSNames, evil.ExtKeyUsage = []string{"evil.example"}, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	der, err := x509.CreateCertificate(rand.Reader, evil, a.cert, &a.leaf.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	forged, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	_, err = forged.Verify(x509.VerifyOptions{DNSName: "evil.example", Roots: pool})
	if bad, ok := err.(x509.CertificateInvalidError); !ok || bad.Reason != x509.CANotAuthorizedForThisName {
		t.Errorf("another host: %v", err)
	}
	if _, err := New(nil); err == nil {
		t.Error("an authority for no host")
	}
}

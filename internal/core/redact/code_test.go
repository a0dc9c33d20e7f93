package redact

import (
	"strings"
	"testing"
)

// Source code, licences and lists stay as they are, under the default class and under those that are asked for.
// Beside each stands a text of the same form that does hold a secret.
func TestSourceCodeStays(t *testing.T) {
	shown := func(c class, s string) string {
		p := &pass{known: noSecrets(), clean: true, classes: map[class]bool{c: true}}
		return p.textOrJSON(s)
	}
	for _, row := range []struct{ why, stays, hides string }{
		{"a call", "rows.sort(key=itemgetter(0))\n", "rows.sort(key=x9Kq0vTz72LmPwe1)\n"},
		{"a call of a method", "secret = self.store.get_secret(name)\n", "secret = k3yS.t0re%gt\n"},
		{"an index", "cred_key = certs[0]\nclient_secret = options[1]\n", "client_secret = 0pt1ons!1\n"},
		{"a name with parts", "password = self.password\n", "password = s3lf!passw0rd\n"},
		{"a name in one word with another", "clientSecret: pemEncodedPrivateKey,\n", "clientSecret: p3mEnc0dedPr1v4te,\n"},
		{"an argument of the same name", "login(password=password, user=user)\n", "login(password='hunter22', user=user)\n"},
		{"a number of a list", "ERR_NO_PASSPHRASE = 177,\n", "NO_PASSPHRASE=17712345\n"},
		{"a number in hexadecimal", "MSG_SECRET = 0x0020,\n", "MSG_SECRET = 9f86d081884c7d65,\n"},
		{"prose", "the credentials: neither can be made again\n", "credentials: n3ither-c4n\n"},
		{"a type", "password: string;\nverifyAccessToken: Promise<void>\n", "password: stringent-9;\n"},
		{"an included file", "#include <pwd.h>\n#include <sys/types.h>\n", "<pwd>hunter2</pwd>\n"},
		{"the names of a union", "'client_secret_basic' | 'client_secret_post'\n", "| client_secret | basic-1742 |\n"},
		{"a name of a secret in quotes", "grant: {client_secret: 'client_secret_post'}\n", "grant: {client_secret: 'client-8841-post'}\n"},
		{"the end of a prompt", "getpass(prompt='Password: ', stream=None)\n", "getpass(password='stream, None')\n"},
		{"a version", "{\"pbkdf2-password\": \"^1.2.1\"}", "{\"pbkdf2-password\": \"^1.2.1-a\"}"},
		{"a header that is looked for", "if (s.indexOf(\"-----BEGIN PRIVATE KEY-----\") < 0) throw bad\n",
			"k = \"-----BEGIN PRIVATE KEY-----\" + \"MIIEvQIBADANBgkqhkiG9w0BAQEFAASC\"\n"},
		{"a certificate", "-----BEGIN CERTIFICATE-----\nSKfFI0dcXv1u5x609mhF0YaDW6KKjbHjKYD\n-----END CERTIFICATE-----\n",
			"-----BEGIN NOTE-----\nSKfFI0dcXv1u5x609mhF0YaDW6KKjbHjKYD it is\n"},
		{"an expression for addresses", `url: "^https?://(\\w+:\\w+@)?x"` + "\n", "https://w:w9w9@x.example/\n"},
		{"a word of the form of a key", "[APActivationPayload, ARAnchor]\n", "[APActivation9Payload]\n"},
	} {
		if got := shown("secrets", row.stays); got != row.stays {
			t.Errorf("%s: %q became %q", row.why, row.stays, got)
		}
		if got := shown("secrets", row.hides); !strings.Contains(got, secretMask) {
			t.Errorf("%s, the control: %q stayed", row.why, row.hides)
		}
	}
	for _, row := range []struct {
		why, c, stays, hides string
	}{
		{"a licence's address", ssn, "Boston, MA 02111-1307, USA\n", "ssn: 021-11-1307\n"},
		{"a version", ssn, "gtk 1.555-12-3456.2\n", "555-12-3456\n"},
		{"an object identifier", card, "2.840.113549.1.1.4\n", "5555.5555.5555.4444\n"},
		{"a revision of a language", phone, "C++20 20.10.6\n", "+20 20.106.1234\n"},
		{"the characters of a number", phone, "list('-+0123456789.')\n", "+123456789\n"},
		{"a scope", ipv6, "a::b(c), d::\n", "2001:db8::b1\n"},
	} {
		if got := shown(row.c, row.stays); got != row.stays {
			t.Errorf("%s: %q became %q", row.why, row.stays, got)
		}
		if got := shown(row.c, row.hides); got == row.hides {
			t.Errorf("%s, the control: %q stayed", row.why, row.hides)
		}
	}
}

// A password in plain letters is one where a configuration or a command gives it.
func TestPlainPasswords(t *testing.T) {
	for _, s := range []string{"PASSWORD=correcthorse\n", "export DB_PASSWORD=letmein\n", "password: correcthorsebattery\n", "--password letmein", "password='letmein'", "?user=a&password=letmein&x=1"} {
		p := &pass{known: noSecrets(), clean: true}
		if got := p.textOrJSON(s); !strings.Contains(got, secretMask) {
			t.Errorf("%q stayed", got)
		}
	}
}

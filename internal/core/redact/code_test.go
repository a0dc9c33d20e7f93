package redact

import (
	"strings"
	"testing"

	"waldo/internal/detect"
)

// Source code, licences and lists stay unchanged, under the default class and under requested classes. Beside each is
// a text of the same form that does hold a secret.
func TestSourceCodeStays(t *testing.T) {
	const chance = "EAAAAAAAPHwBIgf4AAEAAD4MYAQAASIsU8kiJxkjB6A1IJf8fAABIi7zCA"
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
		{"a name of a secret in quotes", "grant: {client_secret: 'client_secret_post'}\n",
			"grant: {client_secret: 'client-8841-post'}\n"},
		{"the end of a prompt", "getpass(prompt='Password: ', stream=None)\n", "getpass(password='stream, None')\n"},
		{"a version", "{\"pbkdf2-password\": \"^1.2.1\"}", "{\"pbkdf2-password\": \"^1.2.1-a\"}"},
		{"a header that is looked for", "if (s.indexOf(\"-----BEGIN PRIVATE KEY-----\") < 0) throw bad\n",
			"k = \"-----BEGIN PRIVATE KEY-----\" + \"MIIEvQIBADANBgkqhkiG9w0BAQEFAASC\"\n"},
		{"a certificate", "-----BEGIN CERTIFICATE-----\nSKfFI0dcXv1u5x609mhF0YaDW6KKjbHjKYD\n-----END CERTIFICATE-----\n",
			"-----BEGIN NOTE-----\nSKfFI0dcXv1u5x609mhF0YaDW6KKjbHjKYD it is\n"},
		{"an expression for addresses", `url: "^https?://(\\w+:\\w+@)?x"` + "\n", "https://w:w9w9@x.example/\n"},
		{"a word of the form of a key", "[APActivationPayload, ARAnchor]\n", "[APActivation9Payload]\n"},
		{"prose after basic", "all basic blocks/instructions, and basic PKCS-12\n", "Basic dXNlcjpwYXNz\n"},
		{"flags of bits", "#define X (CC_CLIENT | SSL3_CC_WRITE)\n", "client | a8Kx0vTz72LmPwe1\n"},
		{"alternatives", "'PasswordChar|PictureMargin|'\n", "|PasswordChar | Picture7Margin|\n"},
		{"a package's name in words", "the base-passwd package holds\n", "run --passwd f0rt1Deb9\n"},
		{"a flag in a sentence", "--password options instead of the url\n", "--password opti0ns\n"},
		{"a folder in the environment", "PWD=dir for the command\n", "UID=sa;PWD=dir\n"},
		{"a string that goes on", `append(env, "PWD="+dir)` + "\n", `append(env, "PASSWORD=dirt+9")` + "\n"},
		{"a test that passed", "--- PASS: TestWithColons/127.0.0.1:0\n", "PASS: TestWithColons/127.0.0.1:0\n"},
		{"a fingerprint", "GPG key: 9554F04D7259F04124DE6B476D5A82AC7E37093B\n",
			"API key: 9554F04D7259F04124DE6B476D5A82AC7E37093B\n"},
		{"a public key", `"key": "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE1Olb3zMAFFxXKHiI"` + "\n",
			`"key": "MFkwEwYHKoZJzj0CAQYIKoZIzj0DAQcDQgAE1Olb3zMAFFxXKHiI"` + "\n"},
		{"an algorithm", "clientKey := rsa_pkcs1_sha256, ed25519KeyPath\n", "clientKey := rsa_pk9cs1_sh4a256\n"},
		{"a wide number", "CLIENT_KEY = 0x200007780000003\n", "CLIENT_KEY = 0y200007780000003\n"},
		{"a call with numbers", `keyGen: cmdMl7Kem7x8KeyG4nAft(),` + "\n", `"key":  "cmdMlKem768K9yGenAft",` + "\n"},
		{"an empty literal", "privateKeys := sync.Pool{\n", "privateKeys := 5ync.Pool{\n"},
		{"an assignment to itself", "exports.TLogV2Client = TLogV2Client;\n", "exports.Client = TLogV2Cl1ent;\n"},
		{"a sentence about it", "const password = 'Password used to sign';\n",
			"const password = 'Passwords used to sign';\n"},
		{"a format", `"password %q", got = "%#v"` + "\n", `"password %q", password = "%#vxyz"` + "\n"},
		{"a member of an object", "error.password?._errors\n", "error.password: _errors1\n"},
		{"a mode of fetch", "credentials: 'same-origin',\n", "credentials: 'some-origin',\n"},
		{"an emblem", `"secret": "㊙"` + "\n", `"secret": "㊙㊙㊙"` + "\n"},
		{"two options", "if client || rsa_p9cs1_sh4a256 {\n", "client || 'rsa_p9cs1_sh4a256'\n"},
		{"a key without content", "-----BEGIN PRIVATE KEY-----\nXXXX\nXXXX\n-----END PRIVATE KEY-----\n",
			"-----BEGIN PRIVATE KEY-----\nABCD\nXXXX\n-----END PRIVATE KEY-----\n"},
		{"base64 of a line", "Au7hpmDxEAAAAAAAPHwB+" + chance + "\n",
			chance + "\n"},
		{"base64 of lines", "APBhAAACAAAAFQAAAAIGYgAAEmIAAD4Z0YAAAAPhnR\nAAAAVQAAAAAAAAIGYgAAEmIAAAAAAAD4Z0YAAAPhnR\n",
			"APBhAAACAAAAFQAAAAAAAAIGYgAAEmIAAAAAAAD4Z0YAAAAAAPhnRgAAAAAA\nshort\n"},
		{"a method of one letter", "s.ReadUint16LengthPrefixed(&x)\n", "s.R9aU7nt16LengthPrefixed7\n"},
		{"checksums of modules",
			"h1:Esoxj+1JgSjX0+ylc0hUmJCOv6V2vFoZiETLR6OtpRs=,149f52f33d8ffd4f82056b4ea1dae2f25024a2e8df0\n",
			"otp=149f52f33d8ffd4f82056b4ea1dae2f25024a2e8df0\n"},
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
		{"a column of numbers", card, "1,4539578763621486,a\n2,4539578763621487,b\n3,4539578763621488,c\n" +
			"4,4539578763621489,d\n",
			"1,4539578763621486,a\n2,4111111111111111,b\n3,5555555555554444,c\n"},
		{"a column under a name", card, "n;id\n1; 4539578763621487\n2; 4539578763621486\n3; 4539578763621488\n",
			"n;id;x\n1; 5;4539578763621487\n2; 4539578763621486;1\n"},
		{"a row of numbers", card, "1111 4539 5787 6362 1486 1111\n", "4539 5787 6362 1486 111\n"},
		{"a decimal number", card, "0.4539578763621486\n", "no. 4539578763621486.\n"},
		{"numbers of any length", card, "45395 787 6362148 6\n", "4539 5787 6362 1486\n"},
		{"first digits of no card", card, "9539578763621485\n", "4539578763621486\n"},
		{"a length of no card", card, "453957876362149\n", "378282246310005\n"},
		{"a postal code", phone, "Boston MA 02110-1301\n", "Boston MA, 07700 900123\n"},
		{"a word that ends like telephone", phone, "DISPATCH(call4194304, 4194304)\n", "call: 4194304\n"},
		{"a sum", phone, "=+29 +32 +262 +712\n", "+29 32 262 712\n"},
		{"a term", phone, "h(x) + 1282529\n", "tel + 1282529 or +1282529\n"},
		{"a large decimal number", phone, "$+281475245147134.93\n", "+281475245147134.\n"},
		{"a decimal number behind a word", phone, "cell rate: 353207.547\n", "cell: 353-207-547\n"},
		{"a range", phone, "0-7 16-23 8-15\n", "07 16-23 81-15\n"},
		{"a table", phone, "08  660992  15\n", "08 660992 15\n"},
		{"a name of a driver", detect.IBAN, "vs2019 to vcbuild and XF86KbdBrightnessUp\n", "DE89 3704 0044 0532 0130 00\n"},
		{"an account that is too short", detect.IBAN, "GB82 WEST 1234 5698 7654 3\n", "GB82 WEST 1234 5698 7654 32\n"},
		{"a section", detect.IP, "see 4.8.1.1 and version 2.7.2.3\n", "from 4.8.1.1\n"},
		{"a section with a line", detect.IP, "(4.8.1.1)\n", "(4.8.1.1:80)\n"},
		{"a mask", detect.IP, "netmask 255.255.240.0\n", "netmask 25.255.240.0\n"},
		{"a group of all routers", detect.IPv6, "ff02::16\n", "fd02::16, 2a02::16\n"},
		{"a scope", detect.IPv6, "a::b(c), d::\n", "2001:db8::b1\n"},
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
	for _, s := range []string{
		"PASSWORD=correcthorse\n", "export DB_PASSWORD=letmein\n", "password: correcthorsebattery\n", "--password letmein",
		"password='letmein'", "?user=a&password=letmein&x=1",
	} {
		p := &pass{known: noSecrets(), clean: true}
		if got := p.textOrJSON(s); !strings.Contains(got, secretMask) {
			t.Errorf("%q stayed", got)
		}
	}
}

package secret_test

import (
	"bytes"
	"encoding/gob"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"strings"
	"testing"
	"text/template"

	"go.yaml.in/yaml/v3"

	"waldo/internal/secret"
)

const canary = "s3cr3t-canary-value"

// TestPrintedValue prints a secret, alone and inside other things, in every way we could think of.
func TestPrintedValue(t *testing.T) {
	v := secret.NewValue(canary)
	type holder struct {
		V secret.Value
		p *secret.Value
		m map[string]secret.Value
		s []secret.Value
		i any
	}
	things := map[string]any{
		"the value": v, "a pointer to it": &v, "a struct": holder{v, &v, map[string]secret.Value{"k": v}, []secret.Value{v}, v},
		"a pointer to a struct": &holder{V: v, i: &v}, "a map": map[string]any{"k": v}, "a slice": []any{v, &v},
	}
	ways := 0
	check := func(how, out string) {
		ways++
		if strings.Contains(out, canary) || strings.Contains(out, fmt.Sprintf("%x", canary)) {
			t.Errorf("%s shows the secret: %s", how, out)
		}
	}
	for name, thing := range things {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%T", "%p", "%10.3s", "% x", "%#x", "%t", "%U", "%e"} {
			check(verb+" of "+name, fmt.Sprintf(verb, thing))
		}
		b, _ := json.Marshal(thing)
		check("json of "+name, string(b))
		y, _ := yaml.Marshal(thing)
		check("yaml of "+name, string(y))
		x, _ := xml.Marshal(thing)
		check("xml of "+name, string(x))
		var buf bytes.Buffer
		slog.New(slog.NewTextHandler(&buf, nil)).Info("m", "k", thing)
		slog.New(slog.NewJSONHandler(&buf, nil)).Info("m", "k", thing)
		log.New(&buf, "", 0).Println(thing)
		_ = gob.NewEncoder(&buf).Encode(thing)
		_ = template.Must(template.New("").Parse("{{.}}")).Execute(&buf, thing)
		_, _ = fmt.Fprint(&buf, thing)
		check("slog, log, gob, template and Fprint of "+name, buf.String())
		check("an error with "+name, fmt.Errorf("wrapped: %w %v", errors.New("x"), thing).Error())
		func() {
			defer func() { check("a panic with "+name, fmt.Sprint(recover())) }()
			panic(thing)
		}()
	}
	if ways < 39 {
		t.Errorf("only %d ways tried", ways)
	}
	if v.Reveal() != canary {
		t.Error("control: Reveal must return the secret, or the rest proves nothing")
	}
}

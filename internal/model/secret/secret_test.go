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
	"reflect"
	"strings"
	"testing"
	"text/template"

	"go.yaml.in/yaml/v3"

	"waldo/internal/core/redact"
	"waldo/internal/model/secret"
	"waldo/internal/storage/secretsource"
	"waldo/internal/storage/secretstore"
)

const canary = "s3cr3t-canary-value"

// holders returns every type of waldo that holds a secret, with one in it.
func holders(t *testing.T) map[string]any {
	t.Helper()
	v := secret.NewValue(canary)
	type inside struct {
		V secret.Value
		p *secret.Value
		m map[string]secret.Value
		s []secret.Value
		i any
	}
	known := &redact.Registry{}
	for range 2 {
		if err := known.Add("env:K", v); err != nil {
			t.Fatal(err)
		}
	}
	known.Text("compiles them all")
	keeper := &secretsource.Keeper{Sources: secretsource.Sources{Env: func(string) (string, bool) { return canary, true },
		Vault: &secretsource.Vault{Token: func() (secret.Value, error) { return v, nil }}}}
	if got, err := keeper.Get("env:K"); err != nil || got.Reveal() != canary {
		t.Fatalf("control: %v", err)
	}
	return map[string]any{
		"the value": v, "a pointer to it": &v, "a struct": inside{
			v, &v, map[string]secret.Value{"k": v}, []secret.Value{v}, v,
		},
		"a pointer to a struct": &inside{V: v, i: &v}, "a map": map[string]any{"k": v}, "a slice": []any{v, &v},
		"redact.Registry": known, "source.Keeper": keeper, "source.Sources": keeper.Sources,
		"source.Vault": keeper.Sources.Vault,
		"safe.Safe":    secretstore.Open(t.TempDir()), "a channel": make(chan secret.Value),
		"a function": func() secret.Value { return v },
	}
}

// TestPrintedValue prints every holder of a secret in more than 39 ways.
func TestPrintedValue(t *testing.T) {
	ways := map[string]bool{}
	check := func(how, of, out string) {
		t.Helper()
		ways[how] = true
		decimal := strings.Trim(fmt.Sprint([]byte(canary)), "[]")
		for _, form := range []string{
			canary, fmt.Sprintf("%x", canary), fmt.Sprintf("% x", canary), fmt.Sprintf("%X", canary), decimal,
		} {
			if strings.Contains(out, form) {
				t.Errorf("%s of %s shows the secret: %s", how, of, out)
			}
		}
	}
	for name, thing := range holders(t) {
		for _, verb := range []string{
			"%v", "%+v", "%#v", "%s", "%q", "%#q", "%x", "%X", "%d", "%T", "%p", "%10.3s", "%-40v", "% x", "%#x", "%t", "%U",
			"%e", "%c", "%o", "%b", "%w",
		} {
			check(verb, name, fmt.Sprintf(verb, thing))
		}
		encode(thing, func(how, out string) { check(how, name, out) })
		var buf bytes.Buffer
		walk(reflect.ValueOf(thing), &buf, map[uintptr]bool{})
		check("a walk by reflection", name, buf.String())
	}
	if len(ways) < 39 {
		t.Errorf("only %d ways tried", len(ways))
	}
	if secret.NewValue(canary).Reveal() != canary {
		t.Error("control: Reveal must return the secret, or the rest proves nothing")
	}
	var buf bytes.Buffer
	plain := struct{ p *string }{new(string)}
	*plain.p = canary
	walk(reflect.ValueOf(plain), &buf, map[uintptr]bool{})
	if !strings.Contains(buf.String(), canary) {
		t.Error("control: the walk finds no text behind a pointer")
	}
}

// encode returns a value in every form that the libraries of waldo write.
func encode(thing any, check func(how, out string)) {
	b, err := json.Marshal(thing)
	check("json", string(b)+fmt.Sprint(err))
	b, err = json.MarshalIndent(map[string]any{"x": thing}, "", " ")
	check("json, indented, in a map", string(b)+fmt.Sprint(err))
	y, err := marshalYAML(thing)
	check("yaml", y+fmt.Sprint(err))
	b, err = xml.Marshal(thing)
	check("xml", string(b)+fmt.Sprint(err))
	to := func(how string, write func(*bytes.Buffer)) {
		var buf bytes.Buffer
		write(&buf)
		check(how, buf.String())
	}
	to("slog, text", func(w *bytes.Buffer) { slog.New(slog.NewTextHandler(w, nil)).Info("m", "k", thing) })
	to("slog, json", func(w *bytes.Buffer) { slog.New(slog.NewJSONHandler(w, nil)).Info("m", "k", thing) })
	to("slog, group", func(w *bytes.Buffer) {
		slog.New(slog.NewTextHandler(w, nil)).With("k", thing).Info("m", slog.Group("g", "k", thing))
	})
	to("log", func(w *bytes.Buffer) { log.New(w, "", 0).Println(thing) })
	to("log, formatted", func(w *bytes.Buffer) { log.New(w, "", 0).Printf("%v", thing) })
	to("gob", func(w *bytes.Buffer) { _ = gob.NewEncoder(w).Encode(thing) })
	to("gob, in an interface", func(w *bytes.Buffer) { _ = gob.NewEncoder(w).Encode(&thing) })
	to("template", func(w *bytes.Buffer) {
		_ = template.Must(template.New("").Parse("{{.}} {{printf \"%v\" .}}")).Execute(w, thing)
	})
	to("Fprint", func(w *bytes.Buffer) { _, _ = fmt.Fprint(w, thing) })
	to("Fprintln", func(w *bytes.Buffer) { _, _ = fmt.Fprintln(w, thing) })
	check("Append", string(fmt.Append(nil, thing)))
	check("Errorf", fmt.Errorf("wrapped: %w %v", errors.New("x"), thing).Error())
	if s, ok := thing.(fmt.Stringer); ok {
		check("String", s.String())
	}
	if s, ok := thing.(fmt.GoStringer); ok {
		check("GoString", s.GoString())
	}
	func() {
		defer func() { check("panic", fmt.Sprint(recover())) }()
		panic(thing)
	}()
	func() {
		defer func() { check("panic with an error", fmt.Sprintf("%+v", recover())) }()
		panic(fmt.Errorf("%v", thing))
	}()
}

// marshalYAML is yaml.Marshal with its panics on unsupported values turned into errors.
func marshalYAML(thing any) (text string, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%v", p)
		}
	}()
	b, err := yaml.Marshal(thing)
	return string(b), err
}

// walk writes all text and bytes that reflection can reach, including unexported fields and values behind pointers,
// as debug printers do.
func walk(v reflect.Value, out *bytes.Buffer, seen map[uintptr]bool) {
	switch v.Kind() {
	case reflect.String:
		fmt.Fprintln(out, v.String())
	case reflect.Pointer, reflect.Interface:
		if v.Kind() == reflect.Pointer {
			if seen[v.Pointer()] {
				return
			}
			seen[v.Pointer()] = true
		}
		if !v.IsNil() {
			walk(v.Elem(), out, seen)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			walk(v.Field(i), out, seen)
		}
	case reflect.Map:
		for _, k := range v.MapKeys() {
			walk(k, out, seen)
			walk(v.MapIndex(k), out, seen)
		}
	case reflect.Slice, reflect.Array:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			for i := range v.Len() {
				out.WriteByte(byte(v.Index(i).Uint()))
			}
			return
		}
		for i := range v.Len() {
			walk(v.Index(i), out, seen)
		}
	}
}

package config

import (
	"testing"
	"time"
)

// A retention is days or hours, and never shorter than an approval can wait.
func TestLogKeep(t *testing.T) {
	for text, want := range map[string]time.Duration{"90d": 90 * 24 * time.Hour, "36h": 36 * time.Hour} {
		cfg, problems := Parse("w", []byte("log: {keep: "+text+"}\n"))
		if len(problems) > 0 || cfg.Log.Keep != want {
			t.Fatalf("control: %s: %v", text, problems)
		}
	}
	for _, text := range []string{"90", "0d", "-1d", "1.5d", "090d", "90m", "d", "ninety", "999999d", "[90d]"} {
		if _, problems := Parse("w", []byte("log: {keep: "+text+"}\n")); len(problems) == 0 {
			t.Errorf("%s was taken", text)
		}
	}
	if _, problems := Parse("w", []byte("log: {keep: 1d}\napproval: {timeout: 48h}\n")); !problems.Has("log.keep") {
		t.Errorf("shorter than an approval: %v", problems)
	}
}

// TestBlobs: a bucket needs its keys, a folder takes none, and no URL holds more than a place.
func TestBlobs(t *testing.T) {
	const keys = `, key: "env:ID", secret: "env:KEY"`
	for text, want := range map[string]string{
		`url: "s3://audit/host-1"` + keys: "", `url: "s3://audit"` + keys: "", `url: "file:///mnt/audit"`: "", // controls
		`url: "s3://audit/host-1", endpoint: "https://s3.example.com", region: eu-central-1, token: "env:T"` + keys: "",

		`url: "s3://audit/host-1"`: "key.missing", `url: "s3://Audit"` + keys: "blobs.url", `url: "s3://audit/../x"` + keys: "blobs.url",
		`url: "s3://id:key@audit"` + keys: "blobs.url", `url: "s3://audit/x?y"` + keys: "blobs.url", `url: "https://audit"` + keys: "blobs.url",
		`url: "file:///mnt/audit"` + keys: "blobs.folder", `url: "file://host/mnt"`: "blobs.url", `url: "audit"`: "blobs.url",
		`url: "s3://audit", region: "eu/x"` + keys: "value.name", `url: "s3://audit", endpoint: "http://s3.example.com"` + keys: "value.url",
	} {
		c, problems := Parse("w", []byte("blobs: {"+text+"}\n"))
		if want == "" && (len(problems) > 0 || c.Blobs.URL == "") || want != "" && !problems.Has(want) {
			t.Errorf("%s: %v, want %q", text, problems, want)
		}
	}
}

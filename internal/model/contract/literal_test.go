package contract

import "testing"

func TestLooksSecret(t *testing.T) {
	for text, want := range map[string]bool{
		"/home/ann/project2/out": false, "/var/lib/app2/data/db1": false, "./build2/out/of/tree": false,
		"http://localhost:8080/api/v1/things": false, "/opt/a1/bin:/opt/b2/bin:/usr/bin": false,
		"postgresql15,mysql8,sqlite3": false, "one two three four five 6": false, "Europe/Berlin": false,
		"2026-01-01T00:00:00Z": false, "my-service-name-2026-version": false, "wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEY": true,
		"wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY": true, "/run/8f3a9c1d7b5e2460f8a1c3d5": true,
		"https://h/8f3a9c1d7b5e2460f8a1c3d5": true, "user:8f3a9c1d7b5e2460f8a1c3d5": true,
	} {
		if LooksSecret(text) != want {
			t.Errorf("%q: %v", text, !want)
		}
	}
}

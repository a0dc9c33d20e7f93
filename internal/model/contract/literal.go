package contract

// LooksSecret reports whether a text is refused where a secret must not stand: for those who write
// configurations.
func LooksSecret(s string) bool { return looksSecret(s) }

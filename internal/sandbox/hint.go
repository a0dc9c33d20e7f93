package sandbox

// HintError is an error with a hint: an action that a person can take.
type HintError struct {
	error
	hint string
}

// WithHint returns err with a hint: an action that a person can take.
func WithHint(err error, hint string) error { return HintError{err, hint} }

// Hint returns what to do.
func (a HintError) Hint() string { return a.hint }

// Unwrap returns the error itself.
func (a HintError) Unwrap() error { return a.error }

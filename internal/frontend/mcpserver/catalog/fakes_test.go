package catalog

import "waldo/internal/testing/catalogtest"

// What tests put into a catalogue.
type (
	rules = catalogtest.Rules[Viewer]
	text  = catalogtest.Words
	pins  = catalogtest.Pins[Problem]
)

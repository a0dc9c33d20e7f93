// Package egress is the way out of a box: it answers the box's questions for names, takes the
// connections that the box makes, and carries those that rules allow to the address that was
// checked. It knows no contract and no policy: rules come in as data, attempts go out as data.
package egress

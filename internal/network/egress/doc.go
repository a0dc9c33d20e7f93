// Package egress is the network access of a sandbox. It answers the sandbox's DNS questions, accepts its connections,
// and relays those that rules allow to the checked address. It knows no contract and no policy: rules come in as
// data, attempts go out as data.
package egress

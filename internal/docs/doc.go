// Package docs holds the tests of the repository's documents: the Go code that
// they show is compiled and run in package snippets, their links lead somewhere,
// and what they list (errors, options, signals, tests) is what the code has. It
// needs no servers.
//
// It may import all of the module; nothing imports it.
package docs

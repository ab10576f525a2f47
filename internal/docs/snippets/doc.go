// Package snippets holds the Go code that the documents show, in regions:
//
//	// snippet: name
//	...
//	// end
//
// A Markdown file shows a region in a block of Go code behind the comment
// <!-- snippet: name -->. Package docs compares the two; the tests here run the
// code on real servers. After a change of a region:
//
//	go test ./internal/docs -update
//
// It may import all of the module; nothing imports it.
package snippets

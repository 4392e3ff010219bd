package main

func Example() {
	main()
	// Output: 100 documents have 4950 words
}

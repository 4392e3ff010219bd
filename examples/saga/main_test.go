package main

func Example() {
	main()
	// Output:
	// booked the flight
	// booked the hotel
	// cancelled the hotel
	// cancelled the flight
	// the trip failed: sold out
}

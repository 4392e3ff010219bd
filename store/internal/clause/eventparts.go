package clause

// EventParts is how many partitions kagzi.events has. At most seven of them have events that are kept, and one is open.
const EventParts = 8

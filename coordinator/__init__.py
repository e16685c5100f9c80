"""State machines of Kafka's coordinators. They take the time of day and know neither sockets nor a clock."""

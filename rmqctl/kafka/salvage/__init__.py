"""Every readable record of one or several log directories into a new one that brokers start on."""

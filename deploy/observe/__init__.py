"""What watches servers: rules, alerts and a dashboard, as Prometheus and Grafana read them."""
